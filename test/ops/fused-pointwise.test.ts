/** The op fusedPointwise: what its kernel computes, and what it refuses. */
import assert from 'node:assert/strict';
import { dispatch } from '../../lib/core/dispatch.js';
import { ComputeType } from '../../lib/core/dtype.js';
import {
  bfloat16,
  bool,
  type DType,
  float32,
  int32,
  int64,
  ones,
  rand,
  randn,
  type Tensor,
  tensor,
  zeros,
} from '../../lib/index.js';
import {
  type FusedOperand,
  type FusedProgram,
  type FusedStep,
  fusedPointwiseOp,
} from '../../lib/ops/fused-pointwise.js';
import { addon } from '../../lib/runtime.js';

const v = (value: number): FusedOperand => ({ value });
const n = (number: number): FusedOperand => ({ number });

function step(
  name: string,
  operands: FusedOperand[],
  {
    dtype = float32,
    computeType = dtype.computeType,
    params = [] as number[],
  }: Partial<FusedStep> = {},
): FusedStep {
  return { name, kernel: addon.kernelNames.indexOf(name), computeType, dtype, operands, params };
}

/** Runs a program; outputs are contiguous, with the shape of the first input by default. */
function run(
  inputs: readonly Tensor[],
  steps: FusedStep[],
  outputs: readonly number[] = [inputs.length + steps.length - 1],
  shape = inputs[0]?.shape ?? [],
): readonly Tensor[] {
  const dtypes: DType[] = [...inputs.map((t) => t.dtype), ...steps.map((each) => each.dtype)];
  const strides = zeros(shape).strides;
  const program: FusedProgram = {
    steps,
    outputs: outputs.map((value) => ({ value, shape, strides, dtype: dtypes[value] ?? float32 })),
  };
  return dispatch(fusedPointwiseOp, inputs, { program });
}

const same = (got: Tensor | undefined, expected: Tensor): void => {
  assert.equal(got?.dtype, expected.dtype);
  assert.deepEqual(got?.shape, expected.shape);
  assert.deepEqual(got.tolist(), expected.tolist());
};

const add = (params = [1]) => ({ params });

describe('fusedPointwise', () => {
  it('computes several ops at once, and stores any of their values', () => {
    const [x, y] = [randn([3, 1000]), randn([3, 1000])];
    const steps = [
      step('mul', [v(0), v(1)]),
      step('add', [v(2), n(0.5)], add()),
      step('exp', [v(3)]),
    ];
    const [sum, exp] = run([x, y], steps, [3, 4]);
    same(sum, x.mul(y).add(0.5));
    same(exp, x.mul(y).add(0.5).exp());
  });

  it('reads broadcast, transposed and strided inputs', () => {
    const [x, row, column] = [randn([130, 70]).t(), randn([130]), randn([70, 1])];
    const other = randn([70, 130, 2]).select(2, 1);
    const steps = [
      step('add', [v(0), v(1)], add()),
      step('mul', [v(4), v(2)]),
      step('sub', [v(5), v(3)], add()),
    ];
    const [got] = run([x, row, column, other], steps, [6], [70, 130]);
    same(got, x.add(row).mul(column).sub(other));
  });

  it('reads large transposed inputs, of several shapes', () => {
    for (const shape of [
      [128, 160],
      [3, 96, 64],
      [2, 2, 100, 64],
    ]) {
      const flipped = [...shape.slice(0, -2), shape.at(-1), shape.at(-2)] as number[];
      const [x, y, z] = [
        randn(flipped).transpose(-1, -2),
        randn(shape),
        randn([shape.at(-1) ?? 1]),
      ];
      const steps = [
        step('mul', [v(0), v(1)]),
        step('gt', [v(3), v(2)], { dtype: bool, computeType: ComputeType.Float }),
        step('add', [v(3), v(2)], add()),
      ];
      const [mask, sum] = run([x, y, z], steps, [4, 5], shape);
      same(mask as Tensor, x.mul(y).gt(z));
      same(sum as Tensor, x.mul(y).add(z));
    }
  });

  it('rounds each result to its dtype', () => {
    const x = randn([5000]).bfloat16();
    const options = { dtype: bfloat16, computeType: ComputeType.Float };
    const steps = [
      step('mul', [v(0), v(0)], options),
      step('add', [v(1), v(0)], { ...options, params: [1] }),
      { ...step('copy', [v(2)]), kernel: -1 },
      step('mul', [v(3), n(3)]),
    ];
    const [sum, product] = run([x], steps, [2, 4]);
    same(sum, x.mul(x).add(x));
    same(product, x.mul(x).add(x).float().mul(3));
  });

  it('computes with integers and bools', () => {
    const i = tensor([1, -5, 7, 2 ** 20], { dtype: int32 });
    const [x, y] = [rand([4]), rand([4])];
    const steps = [
      step('gt', [v(0), n(1)], { dtype: bool, computeType: ComputeType.Int64 }),
      step('where', [v(3), v(1), v(2)]),
      step('mul', [v(0), v(0)], { dtype: int32 }),
    ];
    const [mask, chosen, square] = run([i, x, y], steps, [3, 4, 5]);
    same(mask, i.gt(1));
    same(chosen, x.where(i.gt(1), y));
    same(square, i.mul(i));
  });

  it('accepts operands without elements and without dims', () => {
    same(run([zeros([0, 3])], [step('exp', [v(0)])])[0], zeros([0, 3]));
    same(run([tensor(1)], [step('add', [v(0), v(0)], add())])[0], tensor(2));
  });

  it('uses all values that a program may have', () => {
    const inputs = Array.from({ length: 12 }, () => randn([300]));
    const steps = Array.from({ length: 64 }, (_, i) =>
      step('add', [v(i), v(i + 11)], add([i % 2 === 0 ? 0.5 : -0.5])),
    );
    const values = [...inputs];
    for (const { params } of steps)
      values.push(
        (values[values.length - 12] as Tensor).add(values.at(-1) as Tensor, {
          alpha: params[0] as number,
        }),
      );
    const outputs = Array.from({ length: 12 }, (_, i) => 12 + 5 * i);
    run(inputs, steps, outputs).forEach((t, i) => same(t, values[outputs[i] as number] as Tensor));
  });

  it('reports a division of integers by zero', () => {
    const whole = { dtype: int64 };
    assert.throws(
      () =>
        run(
          [ones([3]).long(), tensor([1, 0, 2]).long()],
          [step('floor_divide', [v(0), v(1)], whole)],
        )[0]?.tolist(),
      /ZeroDivisionError: floor_divide of integers by zero/,
    );
  });

  const x = ones([4]);
  const malformed: Record<string, () => readonly Tensor[]> = {
    'no steps': () => run([x], [], [0]),
    'too many steps': () =>
      run(
        [x],
        Array.from({ length: 65 }, () => step('exp', [v(0)])),
      ),
    'too many operands': () =>
      run(
        Array.from({ length: 24 }, () => x),
        [step('exp', [v(0)])],
      ),
    'a value that comes later': () => run([x], [step('exp', [v(1)])]),
    'a value below zero': () => run([x], [step('exp', [v(-1)])]),
    'a value between two': () => run([x], [step('exp', [v(0.5)])]),
    'a value that is no number': () => run([x], [step('exp', [v(Number.NaN)])]),
    'an output of no value': () => run([x], [step('exp', [v(0)])], [7]),
    'an op that is not pointwise': () => run([x], [step('matmul', [v(0), v(0)])]),
    'an op that does not exist': () => run([x], [{ ...step('exp', [v(0)]), kernel: 1e6 }]),
    'too few operands of an op': () => run([x], [step('add', [v(0)], add())]),
    'a conversion of two values': () => run([x], [{ ...step('add', [v(0), v(0)]), kernel: -1 }]),
    'an op of floats on integers': () =>
      run([x], [step('exp', [v(0)], { computeType: ComputeType.Int64 })]),
    'a compute type that does not exist': () =>
      run([x], [step('exp', [v(0)], { computeType: 3 as never })]),
    'a comparison that is not bool': () => run([x], [step('eq', [v(0), v(0)])]),
    'too many parameters': () => run([x], [step('exp', [v(0)], { params: [1, 2, 3, 4, 5, 6] })]),
  };
  for (const [what, call] of Object.entries(malformed))
    it(`refuses a program with ${what}`, () =>
      assert.throws(() => call()[0]?.tolist(), /malformed program of fused_pointwise/));
});
