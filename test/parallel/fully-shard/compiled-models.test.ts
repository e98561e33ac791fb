/**
 * Models that fullyShard shards and `compile` compiles as a whole: losses, gradients, parameters and
 * collectives of the uncompiled model, to the bit, from one graph.
 */
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
import { CompileCounterWithBackend, withRanks } from '../../../lib/testing/index.js';
import {
  blocksOf,
  failing,
  Model,
  type Sharded,
  VARIANTS,
  type Variant,
} from './compiled-variants.js';

const STEPS = 4;
const BACKENDS = ['eager', 'aot_eager', 'aot_eager_decomp_partition', 'inductor'] as const;
type Backend = (typeof BACKENDS)[number];
/** What runs backward: the engine of autograd, or a captured graph. */
const PASSES = ['the tape', 'compiledAutograd'] as const;
interface Compiled {
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
function modelOf(variant: Variant, compiled: Compiled | null) {
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

async function train(variant: Variant, compiled: Compiled | null): Promise<Run> {
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
  const { passes = 1, rows = () => 5, startsEager = false } = variant;
  const isCompiled = !startsEager || step > 0;
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
async function assertAsUncompiled(variant: Variant, compiled: Compiled): Promise<void> {
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
function wholeMemory({ model, uncompiled }: Made): { blocks: Size[]; root: Size[] } {
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

type Size = { size(): number };

/** What the backends that run op by op share with the others is tried once, with some variants. */
const FEW =
  /default|mixed|replicas|wrappers|twice|sizes|without a reduction$|^a frozen|in the middle/;
const isWhole = (backend: Backend): boolean => backend === 'aot_eager' || backend === 'inductor';

for (const backend of BACKENDS)
  for (const backward of PASSES)
    describe(`models that are fullySharded and compiled (${backend}, backward by ${backward})`, () => {
      const compiled = { backend, backward };

      for (const [name, variant] of Object.entries(VARIANTS))
        if (isWhole(backend) || FEW.test(name))
          it(
            `train as uncompiled ones, with ${name}`,
            withRanks(variant.ranks ?? 2, () => assertAsUncompiled(variant, compiled)),
          );

      it(
        'have gathers in the graph of forward, and free whole parameters as uncompiled ones',
        withRanks(2, () => {
          const made = modelOf({}, compiled);
          const { blocks, root } = wholeMemory(made);
          const sum = (all: Size[]): number => all.reduce((bytes, each) => bytes + each.size(), 0);
          for (let step = 0; step < 3; step++) {
            const loss = made.run(randn([5, 4])).sum();
            assert.equal(sum(blocks), 0, `after forward ${step}`);
            assert.ok(sum(root) > 0, 'the root keeps its parameters for backward');
            made.around(() => loss.backward());
            assert.equal(sum([...blocks, ...root]), 0, `after step ${step}`);
          }
          const ops = made.graphs.forward.flatMap((graph) =>
            graph.callNodes.map((n) => n.op?.name),
          );
          assert.equal(ops.filter((op) => /unshard|gather/i.test(op ?? '')).length >= 4, true);
        }),
      );

      it('get the error of uncompiled ones where ranks accumulate and others reduce', async () => {
        const errorOf = async (how: Compiled | null): Promise<string> => {
          const before = (model: Sharded): void => model.setRequiresGradientSync(getRank() === 0);
          const failed = launch(2, () => train({ before }, how).then(() => null), {
            backend: 'shm',
            timeoutMs: 5_000,
          });
          const error = await failed.then(
            () => assert.fail('expected an error'),
            (thrown: Error) => (thrown.cause ?? thrown) as Error,
          );
          assert.ok(error instanceof CollectiveError, String(error));
          return error.message;
        };
        for (const how of [null, compiled]) assert.match(await errorOf(how), /reduceScatter/);
      });
    });
