/**
 * Fuzzes the raw addon: calls every exported function with arguments of any kind and with damaged
 * commands. Each call must return a value or throw an error with a code of the addon, and no memory
 * may leak.
 */
import { collectGarbage } from '../../lib/eager/gc-policy.js';
import { addon } from '../../lib/runtime.js';
import {
  ALLOCATE,
  anyWord,
  bytesOf,
  type Command,
  damage,
  encode,
  IMMEDIATE,
  recordCommands,
} from './commands.js';
import { planOf } from './plans.js';
import { describeError, Finding, type Rng } from './rng.js';

const words = new Float64Array(addon.words);
type Callable = (...args: unknown[]) => unknown;
const exported = addon as unknown as Readonly<Record<string, Callable>>;
const names = Object.keys(addon).filter((name) => typeof exported[name] === 'function');
const MAX_STREAMS = 6;
const WORD_BYTES = words.byteLength;

let recorded: Command[] | null = null;
const streams: number[] = [];

/** The storages of one case, which it must free. */
class AddonCase {
  readonly rng: Rng;
  readonly handles: number[] = [];
  readonly events: number[] = [];
  tokens: unknown[] = [];
  waiting = 0;
  readonly trace: (line: string) => void;

  constructor(rng: Rng, trace: (line: string) => void) {
    this.rng = rng;
    this.trace = trace;
  }

  /** Calls a function; `undefined` if the addon throws an error of its own. */
  call(name: string, args: readonly unknown[]): { value: unknown } | undefined {
    this.trace(`${name}(${args.map((arg) => inspect(arg)).join(', ')})`);
    try {
      return { value: (exported[name] as Callable)(...args) };
    } catch (error) {
      if (/^SW_/.test(String((error as { code?: unknown }).code))) return undefined;
      throw new Finding(
        `${name}(${args.map((arg) => inspect(arg)).join(', ')}) threw no error of the ` +
          `addon\n${describeError(error)}`,
      );
    }
  }

  /** A storage with random bytes. */
  storage(bytes: number): number {
    const made = this.call('allocate', [this.stream(), bytes, false]);
    if (made === undefined) return 0;
    const handle = words[0] as number;
    this.handles.push(handle);
    const density = this.rng.pick([0, 0, 0.3]); // zeros are valid indices
    const content = new Uint8Array(Math.min(bytes, 256)).map(() =>
      this.rng.chance(density) ? this.rng.int(0, 255) : 0,
    );
    this.call('write', [handle, 0, content, this.stream()]);
    return handle;
  }

  stream(): number {
    return this.rng.chance(0.8) ? (streams[0] as number) : this.rng.pick(streams);
  }

  done = (): void => {
    this.waiting--;
  };
}

function inspect(value: unknown): string {
  if (typeof value === 'symbol' || typeof value === 'function') return typeof value;
  if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer)
    return `${value.constructor.name}(${value.byteLength})`;
  if (typeof value === 'object' && value !== null) return 'object';
  return typeof value === 'string' ? JSON.stringify(value.slice(0, 40)) : String(value);
}

function detached(): Uint8Array {
  const array = new Uint8Array(16);
  structuredClone(array.buffer, { transfer: [array.buffer] });
  return array;
}

function anyArgument(run: AddonCase): unknown {
  const { rng } = run;
  const oddities: (() => unknown)[] = [
    () => undefined,
    () => null,
    () => 'text',
    () => '',
    () => 10n,
    () => Symbol('s'),
    () => ({}),
    () => [],
    () => ({ valueOf: () => 1 }),
    () => new Date(Number.NaN),
    () => new Proxy({}, {}),
    () => new DataView(new ArrayBuffer(8)),
    detached,
    () => new Uint8Array(rng.pick([0, 1, 8, 4096])),
    () => new Float64Array(3),
    () => new BigInt64Array(2),
    () => new Uint8Array(new SharedArrayBuffer(8)),
    () => new ArrayBuffer(rng.pick([0, 8, 64])),
    () => (rng.chance(0.5) ? 'libc.so.6' : 'no-such-library.so'),
    () =>
      rng.pick(['abort', 'getpid', 'cuDriverGetVersion', '\0', 'cuda', 'cpu', 'x'.repeat(3000)]),
  ];
  if (rng.chance(0.25)) return rng.pick(oddities)();
  if (rng.chance(0.3) && run.handles.length > 0) return rng.pick(run.handles);
  if (rng.chance(0.2)) return run.stream();
  if (rng.chance(0.1) && run.events.length > 0) return rng.pick(run.events);
  return rng.chance(0.6) ? rng.int(-1, 9) : rng.pick(anyWord);
}

/** Random arguments; functions that take a callback mostly get one that counts its calls. */
function argumentsFor(run: AddonCase, name: string): unknown[] {
  const args = run.rng.list(run.rng.int(0, 6), () => anyArgument(run));
  const callback = name === 'readAsync' ? 4 : name === 'whenDone' ? 1 : -1;
  if (callback >= 0 && run.rng.chance(0.8)) args[callback] = run.done;
  const array = name === 'write' || name === 'readSync' || name === 'readAsync' ? 2 : -1;
  if (array >= 0 && run.rng.chance(0.7)) args[array] = new Uint8Array(run.rng.int(0, 32));
  if (name === 'adopt' && run.rng.chance(0.7)) args[0] = new ArrayBuffer(run.rng.pick([0, 8, 64]));
  return args;
}

function randomCall(run: AddonCase): void {
  const name = run.rng.pick(names);
  if (name === 'streamCreate' && streams.length >= MAX_STREAMS) return;
  const callsBack = name === 'readAsync' || name === 'whenDone';
  words.fill(0, 0, 16);
  const args = argumentsFor(run, name);
  if (callsBack && args[name === 'readAsync' ? 4 : 1] === run.done) run.waiting++;
  const result = run.call(name, args);
  if (result === undefined) {
    if (callsBack && args[name === 'readAsync' ? 4 : 1] === run.done) run.waiting--;
    return;
  }
  if (name === 'allocate' || name === 'adopt') run.handles.push(words[0] as number);
  // of a plan that an earlier case created
  if (name === 'runPlan') run.handles.push(...words.subarray(0, 16).filter((w) => w >= 2 ** 24));
  if (name === 'streamCreate') streams.push(result.value as number);
  if (name === 'eventCreate') run.events.push(result.value as number);
  if (typeof result.value === 'object') run.tokens.push(result.value);
}

function writeWords(list: readonly number[]): void {
  words.set(list.slice(0, words.length));
}

/** A recorded command with storages of its own, a little damaged. */
function anyCommand(run: AddonCase): Command {
  const { rng } = run;
  recorded ??= recordCommands();
  const command = structuredClone(rng.pick(recorded));
  command.stream = run.stream();
  command.flags = rng.int(0, 1);
  if (rng.chance(0.3)) command.cost = 1e9; // run asynchronously
  for (const operand of command.operands)
    if (operand.kind > 0) operand.kind = run.storage(bytesOf(operand));
  damage(rng, command, run.handles, addon.kernelNames.length);
  return command;
}

/** Encodes some commands as a plan, and runs it a few times. */
function planCall(run: AddonCase): void {
  const { rng } = run;
  const plan = planOf(
    rng,
    rng.list(rng.int(0, 4), () => anyCommand(run)),
  );
  run.trace(`plan: ${plan.words.slice(0, 400).join(' ')}; run: ${plan.run.join(' ')}`);
  const device = rng.chance(0.95) ? 0 : rng.pick(anyWord);
  const created = run.call('createPlan', [Float64Array.from(plan.words), device]);
  if (created === undefined) return;
  run.tokens.push(created.value);
  const id = words[0] as number;
  for (let times = rng.int(1, 3); times > 0; times--) {
    const withTokens = rng.chance(0.5);
    writeWords(plan.run);
    const result = run.call('runPlan', [id, run.stream(), withTokens, rng.chance(0.1)]);
    if (result === undefined || result.value === false) continue;
    run.handles.push(...words.slice(0, plan.outputs));
    if (withTokens) run.tokens.push(result.value);
    if (rng.chance(0.2) && run.handles.length > 0) run.call('release', [rng.pick(run.handles)]);
  }
}

function commandCall(run: AddonCase): void {
  const { rng } = run;
  const command = anyCommand(run);
  const list = encode(command);
  if (rng.chance(0.2)) list[rng.int(0, list.length - 1)] = rng.pick(anyWord);
  writeWords(list);
  const count = rng.chance(0.9)
    ? list.length
    : list.length + rng.pick([-3, -1, 1, 2, 1e6, -list.length]);
  run.trace(`${addon.kernelNames[command.kernel]}: ${list.slice(0, 200).join(' ')}`);
  const result = run.call('submit', [count]);
  if (result === undefined) return;
  if (result.value !== undefined) run.tokens.push(result.value);
  collectOutputs(run, list);
}

/** Collects the handles that the addon wrote for requested allocations. */
function collectOutputs(run: AddonCase, list: readonly number[]): void {
  for (let at = 7; at < list.length; at++) {
    if (list[at] === ALLOCATE && words[at] !== ALLOCATE && (words[at] as number) >= 2 ** 24)
      run.handles.push(words[at] as number);
  }
}

/** Submits more commands than the ring holds without waiting. */
function overflowRing(run: AddonCase): void {
  const kernel = addon.kernelNames.indexOf('add');
  const handle = run.storage(4096);
  const operand = {
    kind: handle,
    value: 0,
    dtype: 0,
    sizes: Array.from({ length: 10 }, () => 2),
    strides: Array.from({ length: 10 }, (_, d) => 2 ** (9 - d)),
  };
  const one = { kind: IMMEDIATE, value: 1, dtype: 0, sizes: [], strides: [] };
  const command: Command = {
    kernel,
    stream: run.stream(),
    inputs: 2,
    outputs: 1,
    flags: 0,
    cost: 1e9,
    operands: [operand, one, operand],
    params: [0, 1],
  };
  writeWords(encode(command));
  const count = encode(command).length;
  const calls = run.rng.int(100, 12_000);
  for (let i = 0; i < calls; i++) addon.submit(count);
  if (run.rng.chance(0.5)) run.call('release', [handle]);
}

/** Submits the largest commands: thousands of operands, words up to the end of the buffer. */
function hugeCommand(run: AddonCase): void {
  const count = run.rng.pick([1, 100, 4095, 4096, 5000]);
  const handle = run.storage(64);
  const operand = {
    kind: handle,
    value: 0,
    dtype: 0,
    sizes: run.rng.list(run.rng.int(0, 16), () => 1),
    strides: [] as number[],
  };
  operand.strides = operand.sizes.map(() => 1);
  const kernel = addon.kernelNames.indexOf('foreach_mul');
  const command: Command = {
    kernel,
    stream: run.stream(),
    inputs: count,
    outputs: 0,
    flags: 0,
    cost: 1e9,
    operands: run.rng.list(count, () => operand),
    params: [count, 2],
  };
  const list = encode(command);
  writeWords(list);
  run.call('submit', [Math.min(list.length, WORD_BYTES / 8)]);
}

async function giveBack(run: AddonCase): Promise<void> {
  for (const stream of streams) for (let i = 0; i < 2; i++) run.call('synchronize', [stream]);
  for (let turns = 0; run.waiting > 0; turns++) {
    if (turns > 2000) throw new Finding(`${run.waiting} callbacks were never called`);
    await new Promise((resolve) => (turns < 100 ? setImmediate(resolve) : setTimeout(resolve, 1)));
  }
  run.call('setBlocking', [false]);
  for (const event of run.events) run.call('eventDestroy', [event]);
  for (const handle of run.handles) run.call('release', [handle]);
  if (run.rng.chance(0.1)) for (const handle of run.handles) run.call('release', [handle]);
  for (const stream of streams) run.call('synchronize', [stream]);
  if (run.tokens.length > 0 && run.rng.chance(0.02)) {
    run.tokens = [];
    collectGarbage();
  }
}

/** Runs one case. @throws Finding */
export async function fuzzAddon(rng: Rng, trace: (line: string) => void): Promise<void> {
  if (streams.length === 0) {
    streams.push(addon.defaultStream(0), addon.streamCreate(0, 0, 0));
    recorded ??= recordCommands();
    collectGarbage();
  }
  const before = addon.memoryStats(0).liveBlocks;
  const run = new AddonCase(rng, trace);
  for (let steps = rng.int(1, 8); steps > 0; steps--) {
    const kind = rng.unit();
    if (kind < 0.4) commandCall(run);
    else if (kind < 0.55) planCall(run);
    else if (kind < 0.99) randomCall(run);
    else if (kind < 0.995) overflowRing(run);
    else hugeCommand(run);
  }
  await giveBack(run);
  const after = addon.memoryStats(0).liveBlocks;
  if (after > before) throw new Finding(`${after - before} blocks were not given back`);
}
