/**
 * Saves with failing calls of the system: `failing-saves-body <folder> <control> <kind> <error>
 * <later too>` runs under failing-calls.c. It lets the first call fail, then the second, until a
 * save meets no failure; after each one it loads. Prints the number of calls that failed, or ends
 * with what is wrong.
 */
import assert from 'node:assert/strict';
import { closeSync, openSync, readSync, writeSync } from 'node:fs';
import { constants } from 'node:os';
import path from 'node:path';
import {
  Checkpointer,
  distributedCheckpoint,
  distributeTensor,
  initDeviceMesh,
  launch,
  loadHuggingFace,
  Shard,
  saveHuggingFace,
} from '../../lib/distributed.js';
import {
  full,
  loadCheckpoint,
  loadSafetensors,
  nn,
  noGrad,
  ShardwiseError,
  saveCheckpoint,
  saveSafetensors,
  type Tensor,
  zeros,
} from '../../lib/index.js';
import type { SaveKind } from './failing-saves.js';

const SIZE = 64;
const RANKS = 2;
/** A save with more calls than this does not end. */
const MOST_CALLS = 2000;

const [folder, control, kind, errorName, laterToo] = process.argv.slice(2) as [
  string,
  string,
  SaveKind,
  'EIO' | 'ENOSPC',
  string,
];

/** A tensor whose elements are all this number. */
const tensorOf = (value: number): Tensor => full([SIZE], value);

function valueOf(t: Tensor): number {
  const values = t.tolist() as number[];
  assert.ok(
    values.length === SIZE && values.every((value) => value === values[0]),
    `a torn checkpoint: ${values}`,
  );
  return values[0] as number;
}

function moduleOf(value: number): nn.Linear {
  const module = new nn.Linear(SIZE, 1, { bias: false });
  noGrad(() => module.weight.fill_(value));
  return module;
}

const run = { folder, every: 1, keep: 2, signals: false, async: false };
const checkpointer = new Checkpointer(run);
const file = path.join(folder, 'run.safetensors');

interface Saves {
  /** Saves a tensor full of the number of the attempt. */
  save(value: number): Promise<void>;
  load(): Promise<number>;
}

async function loadDistributed(): Promise<number> {
  const state = { t: zeros([SIZE]) };
  await distributedCheckpoint.load(folder, state);
  return valueOf(state.t);
}

const kinds: Readonly<Record<SaveKind, Saves>> = {
  safetensors: {
    save: async (value) => void (await saveSafetensors(file, { t: tensorOf(value) })),
    load: async () => valueOf((await loadSafetensors(file))['t'] as Tensor),
  },
  run: {
    save: (value) => saveCheckpoint(file, { t: tensorOf(value) }),
    load: async () => {
      const state = { t: zeros([SIZE]) };
      await loadCheckpoint(file, state);
      return valueOf(state.t);
    },
  },
  distributed: {
    save: (value) =>
      launch(RANKS, async () => {
        const mesh = initDeviceMesh('cpu', [RANKS]);
        const t = distributeTensor(tensorOf(value), mesh, [new Shard(0)]);
        await distributedCheckpoint.save(folder, { t });
      }).then(() => {}),
    load: loadDistributed,
  },
  background: {
    save: async (value) => {
      const saving = await distributedCheckpoint.save(
        folder,
        { t: tensorOf(value) },
        { async: true },
      );
      await saving.wait();
    },
    load: loadDistributed,
  },
  checkpointer: {
    save: (value) => checkpointer.step(value, { t: tensorOf(value) }),
    load: async () => {
      const state = { t: zeros([SIZE]) };
      const resuming = new Checkpointer(run);
      await resuming.resume(state);
      await resuming.close();
      return valueOf(state.t);
    },
  },
  huggingFace: {
    save: async (value) => void (await saveHuggingFace(folder, moduleOf(value))),
    load: async () => {
      const module = moduleOf(0);
      await loadHuggingFace(folder, module);
      return valueOf(module.weight.detach().reshape([SIZE]));
    },
  },
};

const numbers = new BigInt64Array(5);
const opened = openSync(control, 'r+');

/** Lets a call of the next save fail; 0: none. */
function arm(call: number): void {
  numbers.set(
    [call, constants.errno[errorName], Number(laterToo), 0, 0].map((each) => BigInt(each)),
  );
  writeSync(opened, numbers, 0, numbers.byteLength, 0);
}

/** How many calls have failed since. */
function disarm(): number {
  readSync(opened, numbers, 0, numbers.byteLength, 0);
  const failed = Number(numbers[4]);
  arm(0);
  return failed;
}

const { save, load } = kinds[kind];
let last = 1;
await save(last);
let failures = 0;
for (let call = 1; ; call++) {
  assert.ok(call < MOST_CALLS, 'the saves do not pass');
  const value = call + 1;
  arm(call);
  const error = await save(value).then(
    () => null,
    (reason: unknown) => reason,
  );
  const failed = disarm();
  const what = `call ${call} of ${kind}, ${errorName}${laterToo === '1' ? ' from then on' : ''}`;
  if (error !== null) {
    assert.ok(failed > 0, `${what}: fails without a cause: ${error}`);
    assert.ok(error instanceof ShardwiseError, `${what}: ${error}`);
  }
  const found = await load();
  assert.ok(found === value || (error !== null && found === last), `${what}: ${found} is loaded`);
  last = found;
  failures += Number(failed > 0);
  if (failed === 0) break;
}
closeSync(opened);
console.log(failures);
process.exit();
