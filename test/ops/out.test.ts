/** The option `out` of functions that can write their result into a tensor. Reference: PyTorch. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { FakeTensorMode } from '../../lib/compile/index.js';
import { type AnyOp, allOps } from '../../lib/core/op.js';
import { distributeTensor, initDeviceMesh, Shard } from '../../lib/distributed.js';
import * as shardwise from '../../lib/index.js';
import {
  ArgumentError,
  AutogradError,
  add,
  bool,
  DtypeError,
  float32,
  float64,
  full,
  InPlaceError,
  int32,
  int64,
  manualSeed,
  noGrad,
  ones,
  randint,
  ShapeError,
  ShardingError,
  sub,
  type Tensor,
  tensor,
  zeros,
} from '../../lib/index.js';
import { withRanks } from '../../lib/testing/index.js';

const x = (): Tensor => tensor([1, 2]);

type Untyped = (...args: unknown[]) => Tensor;
const functions = shardwise as unknown as Record<string, Untyped>;
/** The ops of the table whose functions take `out`. */
const withOut = allOps().filter((op) => op.traits.includes('out'));

/** Random operands that broadcast to a shape, some of them transposed in memory. */
const operandsOf = (arity: number) =>
  fc.record({
    shape: fc.array(fc.integer({ min: 0, max: 4 }), { maxLength: 3 }),
    alike: fc.array(fc.array(fc.boolean(), { minLength: 3, maxLength: 3 }), {
      minLength: arity,
      maxLength: arity,
    }),
    isTurned: fc.array(fc.boolean(), { minLength: arity + 1, maxLength: arity + 1 }),
    isInteger: fc.boolean(),
    seed: fc.integer({ min: 0, max: 2 ** 30 }),
  });
type Drawn = ReturnType<typeof operandsOf> extends fc.Arbitrary<infer T> ? T : never;

/** A tensor of the values that lies in memory as its transpose does. */
const turned = (t: Tensor): Tensor =>
  t.dim() < 2 ? t : t.transpose(0, 1).contiguous().transpose(0, 1);

function inputsOf({ shape, alike, isTurned, isInteger, seed }: Drawn, op: AnyOp): Tensor[] {
  manualSeed(seed);
  const integers = op.pointwise?.classes === 'I' || isInteger;
  return alike.map((same, i) => {
    const sizes = shape.map((size, dim) => (same[dim] || size === 0 ? size : 1));
    const dtype = op.name === 'where' && i === 0 ? bool : integers ? int32 : float32;
    const values = randint(1, 6, sizes).to(dtype);
    return isTurned[i] ? turned(values) : values;
  });
}

/** The function of an op, of tensors and options. */
function call(op: AnyOp, inputs: readonly Tensor[], options?: object): Tensor {
  const extra = { clamp: [2, 4] }[op.name as 'clamp'] ?? [];
  return (functions[op.name] as Untyped)(...inputs, ...extra, ...(options ? [options] : []));
}

describe('the option out of distributed tensors', () => {
  it(
    'is a distributed tensor, which keeps its placements',
    withRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2]);
      const values = tensor([
        [1, 2],
        [3, 4],
      ]);
      const [rows, columns] = [0, 1].map((dim) => distributeTensor(values, mesh, [Shard(dim)]));
      const out = distributeTensor(zeros([2, 2]), mesh, [Shard(1)]);
      assert.equal(shardwise.mul(rows as Tensor, rows as Tensor, { out }), out);
      assert.deepEqual(out.placements.map(String), [String(Shard(1))]);
      assert.deepEqual([...(await out.fullTensor().reshape([-1]).read())], [1, 4, 9, 16]);
      assert.equal(shardwise.exp(columns as Tensor, { out: columns as Tensor }), columns);
      assert.throws(() => shardwise.exp(out, { out: zeros([2, 2]) }), ShardingError);
      assert.throws(() => shardwise.exp(values, { out }), ShardingError);
    }),
  );
});

describe('the option out of pointwise ops', () => {
  it('is taken by all functions of the table that have it in PyTorch', () => {
    const without = allOps()
      .filter((op) => op.pointwise !== null && functions[op.name] !== undefined)
      .filter((op) => !op.traits.includes('out'))
      .map(({ name }) => name);
    assert.deepEqual(without.sort(), [
      'elu',
      'gelu',
      'isfinite',
      'isinf',
      'isnan',
      'leakyRelu',
      'relu',
      'silu',
      'softplus',
    ]);
    const [t] = [ones([1])];
    for (const name of ['isfinite', 'isinf', 'isnan', 'relu', 'silu'])
      assert.throws(() => functions[name]?.(t, { out: zeros([1]) }), ArgumentError);
    assert.ok(withOut.length >= 60, String(withOut.length));
  });

  for (const op of withOut) {
    const arity = op.pointwise?.arity ?? 1;
    it(`of ${op.name} receives the plain result, however tensors lie in memory`, () => {
      fc.assert(
        fc.property(operandsOf(arity), (drawn) => {
          const inputs = inputsOf(drawn, op);
          const plain = call(op, inputs);
          const { isFloatingPoint } = plain.dtype;
          for (const dtype of [
            plain.dtype,
            isFloatingPoint ? float64 : plain.dtype === bool ? int32 : float32,
          ]) {
            const made = full(plain.shape, 7, { dtype });
            const out = drawn.isTurned[arity] ? turned(made) : made;
            const version = out._version;
            assert.equal(call(op, inputs, { out }), out);
            assert.equal(out._version, version + 1);
            assert.equal(out.dtype, dtype);
            assert.deepEqual(out.tolist(), plain.to(dtype).tolist());
            assert.equal(out.requiresGrad, false);
          }
        }),
        { numRuns: 10 },
      );
    });

    it(`of ${op.name} is checked, also on fake tensors and on meta`, () => {
      const check = (device: 'cpu' | 'meta'): void => {
        const classes = op.pointwise?.classes;
        const dtype = classes === 'I' ? int32 : float32;
        const inputs = Array.from({ length: arity }, (_, i) =>
          ones([2, 3], { dtype: op.name === 'where' && i === 0 ? bool : dtype, device }),
        );
        const { dtype: given } = call(op, inputs);
        const out = zeros([2, 3], { dtype: given, device });
        assert.equal(call(op, inputs, { out }), out);
        const wrong =
          (shape: number[], to: typeof given): (() => Tensor) =>
          () =>
            call(op, inputs, { out: zeros(shape, { dtype: to, device }) });
        assert.throws(wrong([3, 3], given), ShapeError);
        assert.throws(wrong([3, 3], given), /empty\(\[2, 3\]\)/);
        if (given !== bool)
          assert.throws(wrong([2, 3], given.isFloatingPoint ? int64 : bool), DtypeError);
        assert.throws(() => call(op, inputs, { out: null }), ArgumentError);
        assert.throws(() => call(op, inputs, { outt: out }), /there is no option "outt"/);
        if (given.isFloatingPoint) {
          const leaf = zeros([2, 3], { requiresGrad: true, device });
          assert.throws(() => call(op, inputs, { out: leaf }), AutogradError);
          assert.equal(
            noGrad(() => call(op, inputs, { out: leaf })),
            leaf,
          );
        }
      };
      check('cpu');
      check('meta');
      new FakeTensorMode().run(() => check('cpu'));
    });
  }
});

describe('the option out', () => {
  it('receives the result and is returned', () => {
    const out = zeros([2]);
    assert.equal(add(x(), 1, { out }), out);
    assert.deepEqual(out.tolist(), [2, 3]);
    assert.equal(sub(x(), x(), { alpha: 3, out }), out);
    assert.deepEqual(out.tolist(), [-2, -4]);
    assert.equal(out._version, 2);
  });

  it('may be a view, an operand, or overlap one', () => {
    const base = zeros([2, 2]);
    add(x(), 1, { out: base.select(1, 0) });
    assert.deepEqual(base.tolist(), [
      [2, 0],
      [3, 0],
    ]);
    const t = tensor([1, 2, 3]);
    add(t, t, { out: t });
    assert.deepEqual(t.tolist(), [2, 4, 6]);
    add(t.narrow(0, 0, 2), 1, { out: t.narrow(0, 1, 2) });
    assert.deepEqual(t.tolist(), [2, 3, 5]);
  });

  it('has the shape of the result, and a dtype that the result can be cast to', () => {
    const out = zeros([2], { dtype: float64 });
    assert.deepEqual(add(tensor([1, 2], { dtype: int32 }), 1, { out }).tolist(), [2, 3]);
    const narrow = zeros([2], { dtype: float32 });
    assert.deepEqual(add(x().to(float64), 1, { out: narrow }).tolist(), [2, 3]);
    assert.throws(() => add(x(), 1, { out: zeros([2], { dtype: int64 }) }), DtypeError);
    assert.throws(() => add(x(), 1, { out: zeros([3]) }), ShapeError);
    assert.throws(() => add(x(), 1, { out: zeros([1, 2]) }), ShapeError);
    assert.throws(() => add(x(), 1, { out: zeros([1]).expand([2]) }), InPlaceError);
    assert.throws(() => add(x(), 1, { out: 1 as never }), ArgumentError);
    assert.deepEqual(add(x(), 1, { out: undefined }).tolist(), [2, 3]);
  });

  it('is refused where a gradient would be lost', () => {
    const leaf = ones([2]).requiresGrad_();
    assert.throws(() => add(leaf, 1, { out: zeros([2]) }), AutogradError);
    assert.throws(() => add(x(), 1, { out: leaf }), AutogradError);
    assert.throws(() => add(x(), 1, { out: leaf.mul(2) }), AutogradError);
    noGrad(() => add(leaf, 1, { out: leaf }));
    assert.deepEqual(leaf.tolist(), [2, 2]);
  });
});
