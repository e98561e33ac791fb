/**
 * Compiled models that fullyShard shards, as PyTorch's test_fully_shard_compile.py requires them,
 * beside uncompiled ones with the same values, on the same batches.
 */
import assert from 'node:assert/strict';
import {
  type BackwardCompiler,
  compiledAutograd,
  type Graph,
  inductor,
} from '../../lib/compile/index.js';
import { CommDebugMode, fullyShard } from '../../lib/distributed.js';
import {
  compile,
  compiler,
  manualSeed,
  type nn,
  noGrad,
  optim,
  randn,
  Tensor,
} from '../../lib/index.js';
import { stateOf } from '../../lib/parallel/fully-shard/fsdp-state.js';
import { type CompileCounter, CompileCounterWithBackend } from '../../lib/testing/index.js';
import { valuesOf } from '../distributed/support/on-ranks.js';
import { skippingHooks } from '../parallel/fully-shard/skipping-hooks.js';
import { MLP, Mlp, type Sharding, seeded, TRANSFORMER } from './000-models.js';
import { assertClose, BACKENDS, factsOf } from './compiled.js';
import type { World } from './worlds.js';

const STEPS = 10;

type Backend = Exclude<(typeof BACKENDS)[number], 'eager'>;
type Device = World['device'];

/** A rank, and where it runs. */
export interface Place {
  readonly rank: number;
  readonly ranks: number;
  readonly device: Device;
  /** Whether the rank may wait for a value: ranks of one process would wait for each other. */
  readonly isProcess: boolean;
}

type Forward = (input: Tensor) => Tensor;
/** Calls a backward pass. */
type Around = (backward: () => void) => void;

/** What a rank sees of a training. */
interface Seen {
  readonly losses: number[];
  readonly outputs: number[][];
  /** The shards that the rank has at the end, with their placements. */
  readonly parameters: unknown;
  /** In order, for each step. */
  readonly collectives: string[][];
}

/** The graphs of a model: of its forward and of its backward passes. */
interface Counters {
  readonly forward: CompileCounter;
  readonly backward: CompileCounter;
}

function training(each: Sharding, { rank, ranks, device }: Place, lr: number) {
  const model = seeded(each.make, rank).to(device);
  each.shard(model, device, ranks);
  return { model, sgd: new optim.SGD(model.parameters(), { lr }) };
}

type Training = ReturnType<typeof training>;

/** Ten steps after one that shards lazily, and is never compiled. */
async function trained(
  each: Sharding,
  place: Place,
  lr: number,
  counters: Counters | null,
): Promise<Seen> {
  const made = training(each, place, lr);
  const whole = wholeMemory(made.model);
  await iterate(each, place, made, made.model, (backward) => backward(), 1);
  const [run, around] = counters === null ? plainly(made) : compiled(made, counters);
  const seen = await iterate(each, place, made, run, around, STEPS, () => {
    const bytes = [...whole].reduce((sum, storage) => sum + storage.size(), 0);
    assert.equal(bytes, 0, 'bytes of whole parameters between steps');
  });
  assert.ok(whole.size >= each.groups, 'each group has whole parameters');
  const parameters = [...made.model.namedParameters()];
  const facts = await factsOf(parameters.map(([, p]) => p));
  return { ...seen, parameters: parameters.map(([name], i) => [name, facts[i]]) };
}

const plainly = ({ model }: Training): [Forward, Around] => [model, (backward) => backward()];

/** Each step makes its own function that compiles backward, as PyTorch's test does. */
function compiled({ model }: Training, { forward, backward }: Counters): [Forward, Around] {
  const makeCompiler = (): BackwardCompiler => (graph) =>
    compile(graph, { backend: backward, fullgraph: true });
  return [
    compile(model, { backend: forward, fullgraph: true }),
    (pass) => compiledAutograd.enable(makeCompiler(), pass),
  ];
}

/** The storages of whole parameters, which the modules have while forward runs. */
function wholeMemory(model: nn.Module): ReadonlySet<{ size(): number }> {
  const found = new Set<{ size(): number }>();
  for (const module of model.modules()) {
    const names = [...module.namedParameters('', { recurse: false })].map(([name]) => name);
    const handle = module.registerForwardPreHook((owner) => {
      for (const name of names) {
        const t = (owner as unknown as Record<string, Tensor>)[name];
        if (t instanceof Tensor && t.sharding === null) found.add(t.untypedStorage());
      }
      handle.remove();
    });
  }
  return found;
}

async function iterate(
  each: Sharding,
  { rank, device, isProcess }: Place,
  { sgd }: Training,
  run: Forward,
  around: Around,
  steps: number,
  afterStep: () => void = () => {},
): Promise<Omit<Seen, 'parameters'>> {
  manualSeed(42);
  const losses: (number | Tensor)[] = [];
  const outputs: Tensor[] = [];
  const collectives: string[][] = [];
  for (let step = 0; step < steps; step++) {
    const input = each.input(rank, device);
    const mode = new CommDebugMode();
    mode.run(() => {
      const out = run(input);
      const loss = out.sum();
      outputs.push(out.detach());
      losses.push(isProcess ? loss.item<number>() : loss.detach());
      around(() => loss.backward());
    });
    collectives.push(mode.events.map((e) => `${e.phase} ${e.kind} ${e.bytes} ${e.group}`));
    sgd.step();
    sgd.zeroGrad({ setToNone: true });
    afterStep();
  }
  const read = (loss: number | Tensor): number | Promise<number> =>
    typeof loss === 'number' ? loss : loss.itemAsync<number>();
  return {
    losses: await Promise.all(losses.map(read)),
    outputs: await Promise.all(outputs.map(valuesOf)),
    collectives,
  };
}

/** The calls of ops of sharded groups in graphs. */
function groupOps(graphs: readonly Graph[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { op } of graphs.flatMap((graph) => graph.callNodes))
    if (op?.name.startsWith('fsdp::')) counts[op.name] = (counts[op.name] ?? 0) + 1;
  return counts;
}

/** Losses, outputs, parameters and collectives of both; one graph of forward, one of backward. */
async function compareTraining(each: Sharding, backend: Backend, place: Place): Promise<void> {
  // On the CPU a graph runs the kernels of eager code.
  const isExact =
    place.device === 'cpu' && !(each.roundsInParts && backend === 'aot_eager_decomp_partition');
  for (const lr of each.rates) {
    const expected = await trained(each, place, lr, null);
    const counters = {
      forward: CompileCounterWithBackend(backend),
      backward: CompileCounterWithBackend(backend),
    };
    const found = await trained(each, place, lr, counters);
    assertLosses(found.losses, expected.losses);
    (isExact ? assert.deepEqual : assertClose)(found, expected);
    assertGraphs(counters, each.groups);
  }
  if (each.hasDropout) await assertDropout(each, place);
}

/** As close as PyTorch's test wants them; and each step changes the loss. */
function assertLosses(losses: readonly number[], expected: readonly number[]): void {
  assert.equal(losses.length, STEPS);
  for (const [i, loss] of losses.entries()) {
    const wanted = expected[i] as number;
    assert.ok(Math.abs(loss - wanted) <= 1e-8 + 1e-5 * Math.abs(wanted), `${loss}, not ${wanted}`);
    const before = losses[i - 1] ?? Number.POSITIVE_INFINITY;
    assert.ok(Math.abs(loss - before) > 1e-3, `${loss} follows ${before}`);
  }
}

function assertGraphs({ forward, backward }: Counters, groups: number): void {
  assert.deepEqual([forward.frameCount, backward.frameCount], [1, 1]);
  assert.deepEqual(groupOps(forward.graphs), { 'fsdp::unshard': groups, 'fsdp::reshard': groups });
  assert.deepEqual(groupOps(backward.graphs), {
    'fsdp::startUnshard': groups,
    'fsdp::finishUnshard': groups,
    'fsdp::postBackward': groups,
  });
}

/** Masks of dropout change the results: runs with equal results have equal masks. */
async function assertDropout(each: Sharding, place: Place): Promise<void> {
  const { model } = training(each, place, 0);
  const results: number[][] = [];
  for (const seed of [1, 2]) {
    const input = each.input(place.rank, place.device);
    manualSeed(seed);
    results.push(await valuesOf(noGrad(() => model(input))));
  }
  assert.throws(() => assertClose(results[0], results[1]));
}

/** The same with `fallbackRandom`, which PyTorch's test sets. */
async function compareWithFallback(each: Sharding, backend: Backend, place: Place): Promise<void> {
  inductor.config.fallbackRandom = true;
  try {
    await compareTraining(each, backend, place);
  } finally {
    inductor.config.fallbackRandom = false;
  }
}

class FailingMlp extends Mlp {
  fails = false;
  override forward(x: Tensor): Tensor {
    const y = super.forward(x);
    if (this.fails) throw new RangeError('inside');
    return y;
  }
}

/** Counts the runs of a module's hooks as JavaScript code. */
function hookRuns(module: nn.AnyModule): { count: number } {
  const state = stateOf(module) as unknown as Record<'preForward' | 'postForward', AnyHook>;
  const runs = { count: 0 };
  for (const name of ['preForward', 'postForward'] as const) {
    const hook = state[name];
    state[name] = (...args) => {
      runs.count++;
      return hook.apply(state, args);
    };
  }
  return runs;
}

type AnyHook = (...args: unknown[]) => unknown;

const shardedMlp = ({ rank, device }: Place): FailingMlp =>
  fullyShard(seeded(() => new FailingMlp(4), rank).to(device));

/** Hooks run at each call or at the capture only; results are those of the uncompiled model. */
async function compareHooks(backend: Backend | 'eager', place: Place): Promise<void> {
  for (const skip of [false, true]) {
    const [plain, model] = [shardedMlp(place), shardedMlp(place)];
    const counter = CompileCounterWithBackend(backend);
    model.compile({ backend: counter, fullgraph: true });
    const runs = hookRuns(model);
    const seen: number[] = [];
    for (let call = 0; call < 3; call++) {
      const x = randn([4, 4], { device: place.device });
      const out = skippingHooks(skip, () => model(x));
      seen.push(runs.count);
      assertClose(await factsOf([out]), await factsOf([plain(x)]));
    }
    const [first] = seen as [number, ...number[]];
    assert.deepEqual(seen, skip ? [2, 4, 6] : [first, first, first]);
    assert.ok(first >= 2);
    const inGraphs = { 'fsdp::unshard': 1, 'fsdp::endForward': 1 };
    assert.deepEqual(groupOps(counter.graphs), skip ? {} : inGraphs);
    assert.equal(counter.frameCount, 1);
    await assertRecovers(skip, plain, model, place);
  }
}

/** After an error the setting is as before, and the model computes what the other one does. */
async function assertRecovers(
  skip: boolean,
  plain: FailingMlp,
  model: FailingMlp,
  { device }: Place,
): Promise<void> {
  const before = compiler.config.skipFsdpHooks;
  const x = randn([4, 4], { device });
  model.fails = true;
  assert.throws(() => skippingHooks(skip, () => model(x)), /inside/);
  assert.equal(compiler.config.skipFsdpHooks, before);
  model.fails = false;
  const out = skippingHooks(skip, () => model(x));
  assertClose(await factsOf([out]), await factsOf([plain(x)]));
}

/** What each of two ranks does in a case. */
export interface ModelCase {
  readonly title: string;
  readonly run: (place: Place) => Promise<void>;
}

export const RANKS = 2;

const trainingCase = (
  number: number,
  what: string,
  each: Sharding,
  backend: Backend,
  compare = compareTraining,
): ModelCase => ({
  title: `seed 000.${number}: ${what} trains as the uncompiled one, backend ${backend}`,
  run: (place) => compare(each, backend, place),
});

export const CASES: readonly ModelCase[] = [
  ...BACKENDS.map((backend) => ({
    title: `seed 000.1: hooks stay out of graphs if skipFsdpHooks says so, backend ${backend}`,
    run: (place: Place) => compareHooks(backend, place),
  })),
  trainingCase(4, 'an MLP', MLP, 'aot_eager'),
  trainingCase(5, 'an MLP', MLP, 'aot_eager_decomp_partition'),
  trainingCase(6, 'an MLP', MLP, 'inductor'),
  trainingCase(7, 'a transformer', TRANSFORMER, 'aot_eager'),
  trainingCase(8, 'a transformer', TRANSFORMER, 'aot_eager_decomp_partition', compareWithFallback),
  trainingCase(9, 'a transformer', TRANSFORMER, 'inductor', compareWithFallback),
];
