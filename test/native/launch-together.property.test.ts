/**
 * Element-wise commands that are queued together run piece by piece; what they compute is what each
 * computes alone.
 */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  bool,
  type DType,
  float16,
  float32,
  float64,
  int32,
  manualSeed,
  rand,
  type Tensor,
  tensor,
} from '../../lib/index.js';

const N = 40_000; // large enough to be looked at together

type Step = [op: string, target: number, operand: number];

const unary: Record<string, (x: Tensor) => Tensor> = {
  tanh: (x) => x.tanh(),
  neg: (x) => x.neg(),
  exp: (x) => x.clamp({ max: 2 }).exp(),
  positivePart: (x) => x.mul(x.gt(0)),
};
const binary: Record<string, (x: Tensor, y: Tensor) => Tensor> = {
  add: (x, y) => x.add(y),
  mul: (x, y) => x.mul(y),
  addHalf: (x) => x.add(0.5),
  where: (x, y) => x.where(y.gt(0.2), y),
};
const inPlace: Record<string, (x: Tensor, y: Tensor) => Tensor> = {
  add_: (x, y) => x.add_(y),
  mul_: (x) => x.mul_(0.5),
  sub_: (x, y) => x.sub_(y),
  sigmoid_: (x) => x.sigmoid_(),
};

/** Tensors that share memory at the same and at other places, and some that do not. */
function operands(dtype: DType): Tensor[] {
  manualSeed(5);
  const memory = rand([N + 64])
    .sub(0.5)
    .to(dtype);
  const matrix = rand([200, 200]).to(dtype);
  return [
    memory.narrow(0, 0, N),
    memory.narrow(0, 0, N),
    memory.narrow(0, 7, N),
    memory.narrow(0, 64, N),
    rand([N]).to(dtype),
    matrix.t().reshape([N]),
    tensor(0.25).to(dtype).expand([N]),
  ];
}

function run(steps: readonly Step[], dtype: DType, settle: (t: Tensor) => void): Float64Array[] {
  const tensors = operands(dtype);
  settle(tensors[0] as Tensor);
  for (const [op, target, operand] of steps) {
    const [x, y] = [
      tensors[target % tensors.length] as Tensor,
      tensors[operand % tensors.length] as Tensor,
    ];
    const isExpanded = x.stride(0) === 0;
    const result =
      unary[op]?.(x) ?? binary[op]?.(x, y) ?? (isExpanded ? x : inPlace[op]?.(x, y.to(x.dtype)));
    if (result !== undefined && result !== x) tensors.push(result);
    settle(result as Tensor);
  }
  return tensors.map((t) => t.to(float64).toTypedArray<Float64Array>());
}

/** The first place where values differ; undefined for none. An assertion would take far longer. */
function difference(a: readonly Float64Array[], b: readonly Float64Array[]): string | undefined {
  const places = a.map((values, t) => {
    const others = b[t] as Float64Array;
    const isOther = (x: number, i: number): boolean => {
      const y = others[i] as number;
      return x !== y && !(Number.isNaN(x) && Number.isNaN(y));
    };
    const i = values.findIndex(isOther);
    return i < 0 ? undefined : `tensor ${t} at ${i}: ${values[i]} and ${others[i]}`;
  });
  return places.find((place) => place !== undefined);
}

describe('consecutive commands', () => {
  const step = fc.tuple(
    fc.constantFrom(...Object.keys(unary), ...Object.keys(binary), ...Object.keys(inPlace)),
    fc.nat(20),
    fc.nat(20),
  );

  for (const dtype of [float32, float64, float16, int32, bool]) {
    it(`compute the same in a burst as one by one, on views that share memory: ${dtype.name}`, function () {
      this.timeout(60_000);
      fc.assert(
        fc.property(fc.array(step, { minLength: 2, maxLength: 14 }), (given) => {
          const steps = dtype.isFloatingPoint
            ? given
            : given.filter(([op]) =>
                ['positivePart', 'add', 'where', 'addHalf', 'mul'].includes(op),
              );
          const alone = run(steps, dtype, (t) => void t.reshape(-1).select(0, 0).item());
          const together = run(steps, dtype, () => {});
          assert.equal(difference(together, alone), undefined);
        }),
        { numRuns: 12 },
      );
    });
  }

  it('continue after a failed one, whose outputs have no value', () => {
    const x = rand([N]);
    const broken = x
      .indexSelect(0, tensor([N + 1]).long())
      .expand([N])
      .add(x)
      .mul(2)
      .tanh();
    assert.throws(() => broken.sum().item(), /out of range/);
    assert.ok(x.mul(2).tanh().sum().item() > 0);
  });
});
