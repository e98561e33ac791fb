/**
 * Random views of random tensors, changed in place, with gradients in random layouts: the gradients
 * agree with finite differences.
 */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { autograd, bool, float64, InPlaceError, type Tensor, tensor } from '../../lib/index.js';

/** A step of a program, with numbers that are fitted to the shape that they meet. */
interface Step {
  kind: string;
  numbers: readonly number[];
}

/** A view of `t`, or `t` itself where the step does not fit. */
type ViewStep = (t: Tensor, numbers: readonly [number, number, number]) => Tensor;

const views: Record<string, ViewStep> = {
  select: (t, [dim, index]) => t.select(dim % t.ndim, index % sizeOf(t, dim)),
  narrow: (t, [dim, start, length]) => {
    const size = sizeOf(t, dim);
    return t.narrow(dim % t.ndim, start % size, 1 + (length % (size - (start % size))));
  },
  transpose: (t, [dim0, dim1]) => t.transpose(dim0 % t.ndim, dim1 % t.ndim),
  slice: (t, [dim, start, step]) =>
    t.slice(dim % t.ndim, start % sizeOf(t, dim), null, 1 + (step % 2)),
  unsqueeze: (t, [dim]) => t.unsqueeze(dim % (t.ndim + 1)),
  diagonal: (t, [dim1, dim2]) =>
    dim1 % t.ndim === dim2 % t.ndim ? t : t.diagonal(0, dim1 % t.ndim, dim2 % t.ndim),
  asStrided: (t, [start]) => {
    // Defined for row-major inputs from offset 0 only; a window that leaves elements out.
    if (t.storageOffset !== 0 || !t.isContiguous() || t.numel() < 3) return t;
    return t.asStrided([Math.floor((t.numel() - (start % 2)) / 2)], [2], start % 2);
  },
  detour: (t) => t.view(t.shape).squeeze(),
};

/** Views that are only read: elements that share memory cannot be changed in place. */
const readViews: Record<string, ViewStep> = {
  ...views,
  expand: (t, [size]) => t.expand(t.shape.map((s) => (s === 1 ? 1 + (size % 3) : s))),
  unfold: (t, [dim, size]) => t.unfold(dim % t.ndim, 1 + (size % sizeOf(t, dim)), 1),
};

function sizeOf(t: Tensor, dim: number): number {
  return t.shape[dim % t.ndim] as number;
}

/**
 * Another tensor in the shape of `t`, from a leaf: broadcast along one dim, so that its gradient
 * must be summed.
 */
function sourceFor(t: Tensor, source: Tensor, dim: number): Tensor {
  const shape = t.shape.map((s, i) => (t.ndim > 0 && i === dim % t.ndim ? 1 : s));
  const count = shape.reduce((a, b) => a * b, 1);
  return source.slice(0, 0, count).reshape(shape).expand(t.shape);
}

/** Whether elements are chosen, by position. */
function maskFor(t: Tensor, by: number): Tensor {
  return tensor(
    Array.from({ length: t.numel() }, (_, i) => (i * 7 + by) % 3 === 0),
    { dtype: bool },
  ).reshape(t.shape);
}

type ChangeStep = (t: Tensor, source: Tensor, number: number) => Tensor;

const changes: Record<string, ChangeStep> = {
  mul_: (t, source, n) => t.mul_(sourceFor(t, source, n)),
  mulNumber_: (t, _source, n) => t.mul_(n / 4 - 1.6),
  mulSelf_: (t) => t.mul_(t),
  add_: (t, source, n) => t.add_(sourceFor(t, source, n), { alpha: 0.5 }),
  copy_: (t, source, n) => t.copy_(sourceFor(t, source, n)),
  fill_: (t, _source, n) => t.fill_(n / 3),
  zero_: (t) => t.zero_(),
  tril_: (t, _source, n) => (t.ndim < 2 ? t : t.tril_({ diagonal: (n % 3) - 1 })),
  clamp_: (t) => t.clamp_({ min: -0.75, max: 0.8 }),
  maskedFill_: (t, _source, n) => t.maskedFill_(maskFor(t, n), 0.5),
  relu_: (t) => t.relu_(),
  exp_: (t) => t.mul_(0.3).exp_(),
  neighbour: (t, _source, n) =>
    t.ndim > 0 && sizeOf(t, n) > 1 ? t.select(n % t.ndim, 0).mul_(t.select(n % t.ndim, 1)) : t,
};

/**
 * A chain of views of the base, and what is done to its end. `keep` makes later chains start from
 * that end.
 */
interface Chain {
  views: readonly Step[];
  change: Step;
  keep: boolean;
}

interface Program {
  shape: readonly number[];
  order: readonly number[];
  /** The base requires no gradient until something that does is written into it. */
  constantBase: boolean;
  chains: readonly Chain[];
  readout: { views: readonly Step[]; layout: string };
}

function follow(t: Tensor, steps: readonly Step[]): Tensor {
  let at = t;
  for (const { kind, numbers } of steps) {
    // Steps fit tensors with dims; a chain may end in a scalar.
    if (at.ndim > 0 || kind === 'unsqueeze')
      at = (readViews[kind] as ViewStep)(at, numbers as [number, number, number]);
  }
  return at;
}

/** Fixed weights in the shape of `t`, no two alike, as they lie in memory by the layout. */
function weightsFor(t: Tensor, layout: string): Tensor {
  const weights = t
    .detach()
    .newOnes([t.numel()])
    .cumsum(0)
    .mul(0.7)
    .sin()
    .add(1.5)
    .reshape(t.shape);
  const reversed = t.shape.map((_, i) => t.ndim - 1 - i);
  if (layout === 'transposed') return weights.permute(reversed).contiguous().permute(reversed);
  if (layout === 'expanded') return t.detach().newFull([], 1.25).expand(t.shape);
  if (layout === 'gaps')
    return weights
      .unsqueeze(-1)
      .expand([...t.shape, 2])
      .contiguous()
      .select(-1, 0);
  return weights;
}

/**
 * A dense base with the given order of dims in memory, and a history: leaves cannot be changed in
 * place.
 */
function baseOf(leaf: Tensor, { shape, order }: Program): Tensor {
  const inverse: number[] = [];
  order.forEach((d, i) => {
    inverse[d] = i;
  });
  const memory = leaf.reshape(order.map((d) => shape[d] as number));
  return memory.permute(inverse).mul(1);
}

function runProgram(
  program: Program,
  leaf: Tensor,
  source: Tensor,
): { outputs: Tensor[]; cotangents: Tensor[] } {
  const base = baseOf(program.constantBase ? leaf.detach() : leaf, program);
  const read: Tensor[] = [base];
  let start = base;
  for (const { views: steps, change, keep } of program.chains) {
    const view = follow(start, steps);
    (changes[change.kind] as ChangeStep)(view, source, change.numbers[0] as number);
    if (keep) start = view;
    read.push(view);
  }
  // The base by its views, and the views that were changed, which later changes may have changed
  // too.
  const outputs = [follow(base, program.readout.views), ...read.map((t) => t.mul(1))];
  return { outputs, cotangents: outputs.map((t) => weightsFor(t, program.readout.layout)) };
}

type Inputs = readonly [Tensor, Tensor];
/** A number that depends on the inputs, with its history. */
type Loss = (program: Program, inputs: Inputs) => Tensor;

const total = (terms: readonly Tensor[]): Tensor =>
  terms.reduce((sum, t) => sum.add(t), tensor(0, { dtype: float64 }));

/** The outputs, weighted: by a product, so that cotangents have the layout of the weights. */
const lossOf: Loss = (program, inputs) => {
  const { outputs, cotangents } = runProgram(program, ...inputs);
  return total(outputs.map((t, i) => t.mul(cotangents[i] as Tensor).sum()));
};

/** The gradients, weighted. */
const gradientLossOf: Loss = (program, inputs) => {
  const leaves = inputs.map((t) =>
    t.requiresGrad ? t : t.detach().requiresGrad_(),
  ) as unknown as Inputs;
  const grads = gradientsOf(program, leaves, true);
  return total(
    grads.flatMap((g) => (g === null ? [] : [g.mul(weightsFor(g, program.readout.layout)).sum()])),
  );
};

function gradientsOf(program: Program, inputs: Inputs, createGraph: boolean): (Tensor | null)[] {
  const { outputs, cotangents } = runProgram(program, ...inputs);
  const kept = outputs.flatMap((t, i) => (t.requiresGrad ? [i] : []));
  if (kept.length === 0) return [null, null];
  return autograd.grad(
    kept.map((i) => outputs[i] as Tensor),
    inputs,
    { gradOutputs: kept.map((i) => cotangents[i] as Tensor), allowUnused: true, createGraph },
  );
}

function numerical(loss: Loss, program: Program, inputs: Inputs, which: 0 | 1): number[] {
  const eps = 1e-6;
  const given = inputs.map((t) => t.detach());
  return Array.from({ length: inputs[which].numel() }, (_, i) => {
    const at = (step: number): number => {
      const moved = given.map((t) => t.clone()) as unknown as Inputs;
      moved[which].select(0, i).add_(step);
      return loss(program, moved).item();
    };
    return (at(eps) - at(-eps)) / (2 * eps);
  });
}

/**
 * What was saved may be overwritten by a later change: that is an error, and the program says
 * nothing.
 */
function attempt<T>(run: () => T): T {
  try {
    return run();
  } catch (error) {
    fc.pre(!(error instanceof InPlaceError));
    throw error;
  }
}

function checkProgram(
  program: Program,
  loss: Loss,
  gradients: (inputs: Inputs) => (Tensor | null)[],
): void {
  const count = program.shape.reduce((a, b) => a * b, 1);
  // Away from the corners of clamp_ and relu_, all different.
  const values = (seed: number): number[] =>
    Array.from({ length: count }, (_, i) => Math.sin(i * 1.7 + seed) * 1.3 + 0.0123 * i);
  const inputs = [
    tensor(values(1), { dtype: float64 }).requiresGrad_(),
    tensor(values(2), { dtype: float64 }).requiresGrad_(),
  ] as const;
  const grads = attempt(() => gradients(inputs));
  for (const which of program.constantBase ? ([1] as const) : ([0, 1] as const)) {
    const expected = numerical(loss, program, inputs, which);
    const actual = (grads[which]?.tolist() as number[] | undefined) ?? expected.map(() => 0);
    expected.forEach((e, i) => {
      const a = actual[i] as number;
      assert.ok(
        Math.abs(a - e) <= 1e-5 + 1e-4 * Math.abs(e),
        `input ${which}, element ${i}: ${a} by the gradient, ${e} by differences`,
      );
    });
  }
}

const numbers = fc.array(fc.nat(11), { minLength: 3, maxLength: 3 });
const stepOf = (kinds: readonly string[]): fc.Arbitrary<Step> =>
  fc.record({ kind: fc.constantFrom(...kinds), numbers });
const viewSteps = (from: object, maxLength: number): fc.Arbitrary<Step[]> =>
  fc.array(stepOf(Object.keys(from)), { maxLength });

const programs: fc.Arbitrary<Program> = fc
  .array(fc.integer({ min: 1, max: 3 }), { minLength: 1, maxLength: 3 })
  .chain((shape) =>
    fc.record({
      shape: fc.constant(shape),
      order: fc.shuffledSubarray(
        shape.map((_, i) => i),
        { minLength: shape.length },
      ),
      constantBase: fc.nat(3).map((n) => n === 0),
      chains: fc.array(
        fc.record({
          views: viewSteps(views, 3),
          change: stepOf(Object.keys(changes)),
          keep: fc.boolean(),
        }),
        { minLength: 1, maxLength: 3 },
      ),
      readout: fc.record({
        views: viewSteps(readViews, 3),
        layout: fc.constantFrom('plain', 'transposed', 'expanded', 'gaps'),
      }),
    }),
  );

const seed = 20260;
const runsOr = (fewer: number): number => Number(process.env['SHARDWISE_TEST_RUNS'] ?? fewer);

describe('views that are changed in place', () => {
  it('have the gradients that finite differences give, whatever the layout', function () {
    this.timeout(60_000);
    const check = (program: Program): void =>
      checkProgram(program, lossOf, (inputs) => gradientsOf(program, inputs, false));
    fc.assert(fc.property(programs, check), { numRuns: runsOr(300), seed });
  });

  it('have the second gradients that finite differences give', function () {
    this.timeout(60_000);
    const check = (program: Program): void =>
      checkProgram(program, gradientLossOf, (inputs) => {
        const loss = gradientLossOf(program, inputs);
        return loss.requiresGrad
          ? autograd.grad(loss, inputs, { allowUnused: true })
          : [null, null];
      });
    fc.assert(fc.property(programs, check), { numRuns: runsOr(100), seed });
  });
});
