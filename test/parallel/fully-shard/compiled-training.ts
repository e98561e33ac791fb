/** Training of a sharded model, compiled or not, and what a rank sees of it. */
import assert from 'node:assert/strict';
import { isDeepStrictEqual } from 'node:util';
import {
  type BackwardCompiler,
  type CompileOptions,
  compiledAutograd,
} from '../../../lib/compile/index.js';
import {
  applyActivationCheckpointing,
  CollectiveError,
  CommDebugMode,
  checkpoint,
  DTensor,
  fullyShard,
  getRank,
  launch,
} from '../../../lib/distributed.js';
import {
  compile,
  manualSeed,
  type nn,
  noGrad,
  optim,
  randn,
  type Tensor,
} from '../../../lib/index.js';
import { CompileCounterWithBackend } from '../../../lib/testing/index.js';
import {
  blocksOf,
  failing,
  freezesMiddle,
  Model,
  type Sharded,
  type Variant,
} from './compiled-variants.js';

const STEPS = 4;
export const BACKENDS = ['eager', 'aot_eager', 'aot_eager_decomp_partition', 'inductor'] as const;
type Backend = (typeof BACKENDS)[number];
/** What runs backward: the engine of autograd, or a captured graph. */
export const PASSES = ['the tape', 'compiledAutograd'] as const;
export interface Compiled {
  readonly backend: Backend;
  readonly backward: (typeof PASSES)[number];
}

/** What a rank sees of a step. */
interface Seen {
  readonly losses: number[];
  readonly gradients: Readonly<Record<string, unknown>>;
  readonly parameters: Readonly<Record<string, unknown>>;
  /** Without their order, which a schedule may change. */
  readonly collectives: string[];
}

interface Run {
  readonly steps: Seen[];
  readonly frames: [forward: number, backward: number];
}

type Forward = (x: Tensor) => Tensor;

/** A model, and what calls it and its backward. */
export function modelOf(variant: Variant, compiled: Compiled | null) {
  const { options = () => ({}), width = 12, use = (block, x) => block(x), checkpoints } = variant;
  manualSeed(1);
  const model = new Model(width, checkpoints === 'in forward' ? checkpoint : use);
  const given = options();
  variant.prepare?.(model, given);
  const blocks = new Set<nn.AnyModule>(model.blocks);
  if (checkpoints === 'wrappers')
    applyActivationCheckpointing(model, { checkFn: (module) => blocks.has(module) });
  for (const block of model.blocks) fullyShard(block, given);
  const sharded = fullyShard(model, given) as Sharded;
  variant.after?.(sharded);
  const forward = CompileCounterWithBackend(compiled?.backend ?? 'eager');
  const backward = CompileCounterWithBackend(compiled?.backend ?? 'eager');
  const compiler: BackwardCompiler = (graph) => compile(graph, { backend: backward });
  const enabled = (fn: () => void): void => compiledAutograd.enable(compiler, fn);
  const uncompiled: Forward = (x) => sharded(x);
  return {
    model: sharded,
    uncompiled,
    run: compiled === null ? uncompiled : compiledCall(sharded, variant, forward),
    around: compiled?.backward === 'compiledAutograd' ? enabled : (fn: () => void) => fn(),
    frames: (): [number, number] => [forward.frameCount, backward.frameCount],
    graphs: { forward: forward.graphs, backward: backward.graphs },
  };
}

function compiledCall(
  model: Sharded,
  { compiles = 'model' }: Variant,
  backend: CompileOptions['backend'],
): Forward {
  const options = { backend, fullgraph: true } as const;
  if (compiles === 'function') return compile((x: Tensor) => model(x), options);
  if (compiles === 'model') return compile(model, options) as Forward;
  model.compile(options);
  return (x) => model(x);
}

type Made = ReturnType<typeof modelOf>;

export async function train(variant: Variant, compiled: Compiled | null): Promise<Run> {
  const made = modelOf(variant, compiled);
  const { model } = made;
  const optimizer = new optim.AdamW(model.parameters(), { lr: 0.05 });
  const steps: Seen[] = [];
  for (let step = 0; step < STEPS; step++) {
    if (variant.fails?.[step] !== undefined) failingStep(variant, made, step);
    const mode = new CommDebugMode();
    const results = mode.run(() => stepOf(variant, made, step));
    const gradients = await valuesOf(model, (p) => p.grad);
    optimizer.step();
    optimizer.zeroGrad();
    assertSharded(model);
    steps.push({
      losses: (await Promise.all(results.map((t) => t.read()))).map((value) => Number(value[0])),
      gradients,
      parameters: await valuesOf(model, (p) => p),
      collectives: mode.events.map((e) => `${e.phase} ${e.kind} ${e.bytes} ${e.group}`).sort(),
    });
  }
  return { steps, frames: made.frames() };
}

/** Forward and backward of all passes, then an evaluation. The losses. */
function stepOf(variant: Variant, made: Made, step: number): Tensor[] {
  const { passes = 1, rows = () => 5, isEager = () => false } = variant;
  const isCompiled = !isEager(step);
  const run = isCompiled ? made.run : made.uncompiled;
  const losses: Tensor[] = [];
  for (let pass = 0; pass < passes; pass++) {
    variant.before?.(made.model, step, pass);
    manualSeed(100 * step + 10 * pass + getRank());
    const loss = run(randn([rows(step), 4]))
      .square()
      .mean();
    if (isCompiled) made.around(() => loss.backward());
    else loss.backward();
    losses.push(loss.detach());
  }
  if (variant.evaluates) losses.push(evaluated(made.model, run, rows(step)));
  return losses;
}

function evaluated(model: Sharded, run: Forward, rows: number): Tensor {
  model.eval();
  const loss = noGrad(() =>
    run(randn([rows, 4]))
      .square()
      .mean(),
  );
  model.train();
  return loss;
}

/** A step that throws on all ranks. The program drops its gradients, as the docs ask. */
function failingStep(variant: Variant, made: Made, step: number): void {
  const { model } = made;
  const where = variant.fails?.[step];
  if (where === 'JavaScript') model.throws = true;
  else if (where !== undefined) failing.set(getRank(), where);
  try {
    assert.throws(() => stepOf(variant, made, step), /failed in/);
  } finally {
    model.throws = false;
    failing.delete(getRank());
  }
  model.zeroGrad();
  assertSharded(model);
}

const assertSharded = (model: nn.AnyModule): void => {
  for (const [name, p] of model.namedParameters()) assert.ok(p instanceof DTensor, name);
};

/** The shards of this rank by name, with their placements. */
async function valuesOf(
  model: Sharded,
  of: (p: nn.Parameter) => Tensor | null,
): Promise<Record<string, unknown>> {
  const values: Record<string, unknown> = {};
  for (const [name, parameter] of model.namedParameters()) {
    const t = of(parameter);
    assert.ok(t === null || t instanceof DTensor, name);
    values[name] = t && {
      placements: t.placements.map(String),
      values: Array.from(await t.toLocal().detach().contiguous().read(), Number),
    };
  }
  return values;
}

/** Compares to the bit. The message has the first items that differ, not all of them. */
function assertEqual(found: object, expected: object, what: string): void {
  const [a, b] = [found, expected] as Record<string, unknown>[];
  for (const key of new Set([...Object.keys(found), ...Object.keys(expected)])) {
    const [x, y] = [a?.[key], b?.[key]];
    if (isDeepStrictEqual(x, y)) continue;
    const shown = [x, y].map((value) => JSON.stringify(value)?.slice(0, 120));
    assert.fail(`${what} differ at ${key}: ${shown.join(', expected ')}`);
  }
}

/** Trains both on this rank. A difference names its step and what differs. */
export async function assertAsUncompiled(variant: Variant, compiled: Compiled): Promise<void> {
  const expected = await train(variant, null);
  const found = await train(variant, compiled);
  for (const [i, step] of found.steps.entries())
    for (const key of ['losses', 'gradients', 'parameters', 'collectives'] as const)
      assertEqual(step[key], (expected.steps[i] as Seen)[key], `${key} of step ${i}`);
  const [forward, backward] = found.frames;
  const [mostForward, mostBackward] = variant.frames ?? [1, 1];
  assert.ok(forward >= 1 && forward <= mostForward, `${forward} graphs of forward`);
  // The tape that 'eager' records has checkpoints, which only the engine runs again.
  const isEngine = compiled.backend === 'eager' && variant.checkpoints !== undefined;
  if (compiled.backward === 'the tape' || isEngine) assert.equal(backward, 0);
  else assert.ok(backward >= 1 && backward <= mostBackward, `${backward} graphs of backward`);
  const { losses } = found.steps[0] as Seen;
  assert.notEqual(losses[0], found.steps.at(-1)?.losses[0], 'training changes the losses');
}

/** The memory of the whole parameters of the blocks, and of the root. */
export function wholeMemory({ model, uncompiled }: Made): { blocks: Size[]; root: Size[] } {
  const blocks = new Set<Size>();
  const root = new Set<Size>();
  const watch = (layer: nn.Linear, into: Set<Size>): { remove(): void } =>
    layer.registerForwardPreHook((each) => {
      into.add((each as nn.Linear).weight.untypedStorage());
    });
  const handles = [
    ...blocksOf(model).flatMap(({ up, down }) => [watch(up, blocks), watch(down, blocks)]),
    ...[model.first, model.last].map((layer) => watch(layer, root)),
  ];
  noGrad(() => uncompiled(randn([5, 4])));
  for (const handle of handles) handle.remove();
  return { blocks: [...blocks], root: [...root] };
}

export type Size = { size(): number };

/** What rank 1 alone does, and what the error names: the first call in which the ranks differ. */
export const DIFFERENCES: Readonly<
  Record<string, [change: (model: Sharded) => void, pattern: RegExp]>
> = {
  'only accumulates': [(model) => model.setRequiresGradientSync(false), /reduceScatter/],
  'freezes a block': [freezesMiddle, /allGather.*blocks\.1/s],
  'leaves a block out': [
    (model) => {
      model.isWhole = false;
    },
    /allGather.*blocks\.[12]/s,
  ],
};

/** The error of a rank: not that of one that waited until its timeout. */
export async function errorOf(
  change: (model: Sharded) => void,
  compiled: Compiled | null,
): Promise<CollectiveError> {
  const after = (model: Sharded): void => {
    if (getRank() === 1) change(model);
  };
  const failed = launch(2, () => train({ after }, compiled).then(() => null), {
    backend: 'shm',
    timeoutMs: 5_000,
  });
  const error = await failed.then(
    () => assert.fail('expected an error'),
    (thrown: Error) => (thrown.cause ?? thrown) as Error,
  );
  assert.ok(error instanceof CollectiveError, String(error));
  return error;
}
