/** Training of a parallel model, compiled or not, and what a rank sees of it. */
import assert from 'node:assert/strict';
import { isDeepStrictEqual } from 'node:util';
import {
  type BackwardCompiler,
  type CompileOptions,
  compiledAutograd,
} from '../../lib/compile/index.js';
import { CommDebugMode, getRank } from '../../lib/distributed.js';
import {
  compile,
  manualSeed,
  type nn,
  noGrad,
  optim,
  randn,
  type Tensor,
} from '../../lib/index.js';
import { CompileCounterWithBackend } from '../../lib/testing/index.js';
import { failing } from './compiled-model.js';

export const STEPS = 4;
export const BACKENDS = ['eager', 'aot_eager', 'aot_eager_decomp_partition', 'inductor'] as const;
type Backend = (typeof BACKENDS)[number];
/** What runs backward: the engine of autograd, or a captured graph. */
export const PASSES = ['the tape', 'compiledAutograd'] as const;
export interface Compiled {
  readonly backend: Backend;
  readonly backward: (typeof PASSES)[number];
}

/** How a model trains. */
export interface TrainingVariant<M> {
  readonly ranks?: number;
  /** Called before each backward pass. */
  readonly before?: (model: M, step: number, pass: number) => void;
  /** Calls `run`, which runs forward and backward of a pass. */
  readonly around?: (model: M, step: number, pass: number, run: () => void) => void;
  readonly passes?: number;
  readonly rows?: (step: number) => number;
  /** Whether the model is evaluated after each step, without gradients. */
  readonly evaluates?: boolean;
  /** Whether a step is not compiled; no step by default, so that the first one is a capture. */
  readonly isEager?: (step: number) => boolean;
  /** What is compiled: the model, a function that calls it, or its own `forward`, in place. */
  readonly compiles?: 'model' | 'function' | 'in place';
  /** Most captured graphs: of forward, and of backward with compiledAutograd. 1 by default. */
  readonly frames?: readonly [forward: number, backward: number];
  /** Whether only the engine runs backward of the tape that 'eager' records, as of checkpoints. */
  readonly needsEngine?: boolean;
  /** The steps that fail, and where. */
  readonly fails?: Readonly<Record<number, 'forward' | 'backward' | 'JavaScript'>>;
  /** Called between the gradients of a step and the optimizer. */
  readonly beforeOptimizer?: (model: M) => void;
}

/** What makes models parallel. */
export interface Parallel<M extends nn.AnyModule, V extends TrainingVariant<M>> {
  make(variant: V): M;
  /** Makes forward throw in JavaScript, or no more. */
  setThrows(model: M, throws: boolean): void;
  /** What the rank has of each parameter, or of its gradient. */
  valuesOf(model: M, of: (p: nn.Parameter) => Tensor | null): Promise<Record<string, unknown>>;
  /** What holds between steps, also after an error. */
  check(model: M): void;
  /** Whether a schedule may move collectives in front of others. */
  readonly movesCollectives: boolean;
}

/** What a rank sees of a step. */
interface Seen {
  readonly losses: number[];
  readonly gradients: Readonly<Record<string, unknown>>;
  readonly parameters: Readonly<Record<string, unknown>>;
  readonly collectives: string[];
}

interface Run {
  readonly steps: Seen[];
  readonly frames: [forward: number, backward: number];
}

type Forward = (x: Tensor) => Tensor;

/** What calls a model and its backward. */
export function callsOf<M extends nn.AnyModule>(
  model: M,
  variant: TrainingVariant<M>,
  compiled: Compiled | null,
) {
  const forward = CompileCounterWithBackend(compiled?.backend ?? 'eager');
  const backward = CompileCounterWithBackend(compiled?.backend ?? 'eager');
  const compiler: BackwardCompiler = (graph) => compile(graph, { backend: backward });
  const enabled = (fn: () => void): void => compiledAutograd.enable(compiler, fn);
  const uncompiled: Forward = (x) => (model as unknown as Forward)(x);
  return {
    model,
    uncompiled,
    run:
      compiled === null
        ? uncompiled
        : lowered(compiledCall(model, variant, forward), compiled.backend),
    around: compiled?.backward === 'compiledAutograd' ? enabled : (fn: () => void) => fn(),
    frames: (): [number, number] => [forward.frameCount, backward.frameCount],
    graphs: { forward: forward.graphs, backward: backward.graphs },
  };
}

function compiledCall<M extends nn.AnyModule>(
  model: M,
  { compiles = 'model' }: TrainingVariant<M>,
  backend: CompileOptions['backend'],
): Forward {
  const options = { backend, fullgraph: true } as const;
  const call = model as unknown as Forward;
  if (compiles === 'function') return compile((x: Tensor) => call(x), options);
  if (compiles === 'model') return compile(model, options) as unknown as Forward;
  model.compile(options);
  return (x) => call(x);
}

/** A backend runs a graph that it cannot lower as the front graph, which no test compares. */
function lowered(run: Forward, backend: Backend): Forward {
  if (backend === 'eager') return run;
  return (x) => {
    const result = run(x);
    if (result.requiresGrad) assert.equal(result.gradFn?.name, 'CompiledFunction');
    return result;
  };
}

type Calls<M extends nn.AnyModule> = ReturnType<typeof callsOf<M>>;

export async function train<M extends nn.AnyModule, V extends TrainingVariant<M>>(
  parallel: Parallel<M, V>,
  variant: V,
  compiled: Compiled | null,
): Promise<Run> {
  manualSeed(1);
  const model = parallel.make(variant);
  const calls = callsOf(model, variant, compiled);
  const optimizer = new optim.AdamW(model.parameters(), { lr: 0.05 });
  const steps: Seen[] = [];
  for (let step = 0; step < STEPS; step++) {
    if (variant.fails?.[step] !== undefined) failingStep(parallel, variant, calls, step);
    const mode = new CommDebugMode();
    const results = mode.run(() => stepOf(variant, calls, step));
    const gradients = await parallel.valuesOf(model, (p) => p.grad);
    mode.run(() => variant.beforeOptimizer?.(model));
    optimizer.step();
    optimizer.zeroGrad();
    parallel.check(model);
    const collectives = mode.events.map((e) => `${e.phase} ${e.kind} ${e.bytes} ${e.group}`);
    steps.push({
      losses: (await Promise.all(results.map((t) => t.read()))).map((value) => Number(value[0])),
      gradients,
      parameters: await parallel.valuesOf(model, (p) => p),
      collectives: parallel.movesCollectives ? collectives.sort() : collectives,
    });
  }
  return { steps, frames: calls.frames() };
}

/** Forward and backward of all passes, then an evaluation. The losses. */
function stepOf<M extends nn.AnyModule>(
  variant: TrainingVariant<M>,
  calls: Calls<M>,
  step: number,
): Tensor[] {
  const { passes = 1, rows = () => 5, isEager = () => false } = variant;
  const { around = (_model, _step, _pass, run) => run() } = variant;
  const isCompiled = !isEager(step);
  const run = isCompiled ? calls.run : calls.uncompiled;
  const losses: Tensor[] = [];
  for (let pass = 0; pass < passes; pass++) {
    variant.before?.(calls.model, step, pass);
    manualSeed(100 * step + 10 * pass + getRank());
    around(calls.model, step, pass, () => {
      const loss = run(randn([rows(step), 4]))
        .square()
        .mean();
      if (isCompiled) calls.around(() => loss.backward());
      else loss.backward();
      losses.push(loss.detach());
    });
  }
  if (variant.evaluates) losses.push(evaluated(calls.model, run, rows(step)));
  return losses;
}

function evaluated(model: nn.AnyModule, run: Forward, rows: number): Tensor {
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
function failingStep<M extends nn.AnyModule, V extends TrainingVariant<M>>(
  parallel: Parallel<M, V>,
  variant: V,
  calls: Calls<M>,
  step: number,
): void {
  const { model } = calls;
  const where = variant.fails?.[step];
  if (where === 'JavaScript') parallel.setThrows(model, true);
  else if (where !== undefined) failing.set(getRank(), where);
  try {
    assert.throws(() => stepOf(variant, calls, step), /failed in/);
  } finally {
    parallel.setThrows(model, false);
    failing.delete(getRank());
  }
  model.zeroGrad();
  parallel.check(model);
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
export async function assertTrainsAsUncompiled<
  M extends nn.AnyModule,
  V extends TrainingVariant<M>,
>(parallel: Parallel<M, V>, variant: V, compiled: Compiled): Promise<void> {
  const expected = await train(parallel, variant, null);
  const found = await train(parallel, variant, compiled);
  for (const [i, step] of found.steps.entries())
    for (const key of ['losses', 'gradients', 'parameters', 'collectives'] as const)
      assertEqual(step[key], (expected.steps[i] as Seen)[key], `${key} of step ${i}`);
  const [forward, backward] = found.frames;
  const [mostForward, mostBackward] = variant.frames ?? [1, 1];
  assert.ok(forward >= 1 && forward <= mostForward, `${forward} graphs of forward`);
  const isEngine = compiled.backend === 'eager' && variant.needsEngine === true;
  if (compiled.backward === 'the tape' || isEngine) assert.equal(backward, 0);
  else assert.ok(backward >= 1 && backward <= mostBackward, `${backward} graphs of backward`);
  const { losses } = found.steps[0] as Seen;
  assert.notEqual(losses[0], found.steps.at(-1)?.losses[0], 'training changes the losses');
}
