/**
 * `view` with a dtype shows the bytes of a tensor as that dtype, with PyTorch's rules for sizes,
 * strides and offsets (torch/testing: test_view_ops.py).
 */
import assert from 'node:assert/strict';
import { compile } from '../../lib/compile/index.js';
import { distributeTensor, initDeviceMesh, Replicate, Shard } from '../../lib/distributed.js';
import {
  arange,
  bfloat16,
  bool,
  type DType,
  DtypeError,
  float16,
  float32,
  float64,
  int8,
  int16,
  int32,
  int64,
  ones,
  ShapeError,
  type Tensor,
  tensor,
  uint8,
  view,
  zeros,
} from '../../lib/index.js';
import { onRanks, valuesOf } from '../distributed/support/on-ranks.js';

const layout = (t: Tensor): unknown => [t.shape, t.strides, t.storageOffset];

describe('view with a dtype', () => {
  it('shows the bits of each element, which keeps its size', () => {
    const floats = tensor([1, -2, 0.5], { dtype: float32 });
    assert.deepEqual(floats.view(int32).tolist(), [0x3f800000, -0x40000000, 0x3f000000]);
    assert.deepEqual(floats.view(int32).view(float32).tolist(), [1, -2, 0.5]);
    assert.deepEqual(tensor([1.5], { dtype: bfloat16 }).view(int16).tolist(), [0x3fc0]);
    assert.deepEqual(tensor([1.5], { dtype: float16 }).view('int16').tolist(), [0x3e00]);
    assert.deepEqual(tensor([-1, 1], { dtype: int8 }).view(uint8).tolist(), [255, 1]);
    assert.deepEqual(tensor([true, false]).view(uint8).tolist(), [1, 0]);
    assert.deepEqual(tensor([1], { dtype: float64 }).view(int64).tolist(), [0x3ff0000000000000n]);
    assert.deepEqual(view(floats, int32).tolist(), floats.view(int32).tolist());
    assert.deepEqual(view(floats, { size: int32 }).tolist(), floats.view(int32).tolist());
  });

  it('is the same memory: changes of one are seen in the other, and count as its changes', () => {
    const x = zeros([2, 3]);
    const bits = x.view(int32);
    bits.select(0, 1).fill_(0x40400000);
    assert.deepEqual(x.tolist(), [
      [0, 0, 0],
      [3, 3, 3],
    ]);
    assert.equal(x._version, 1);
    assert.equal(x.untypedStorage(), bits.untypedStorage());
  });

  it('keeps any layout of elements of the same size', () => {
    const x = arange(24, { dtype: float32 }).reshape([2, 3, 4]);
    for (const t of [
      x,
      x.permute(2, 0, 1),
      x.slice(2, 1, 4, 2),
      x.select(1, 2),
      ones([]).expand(3),
    ])
      assert.deepEqual(layout(t.view(int32)), layout(t));
    assert.deepEqual(
      x.permute(2, 0, 1).view(int32).view(float32).tolist(),
      x.permute(2, 0, 1).tolist(),
    );
  });

  it('splits elements into smaller ones along the last dim', () => {
    const x = arange(24, { dtype: int32 }).reshape([2, 3, 4]).select(0, 1).transpose(0, 0);
    assert.deepEqual(layout(x.view(int16)), [[3, 8], [8, 1], 24]);
    assert.deepEqual(x.view(int16).select(0, 1).tolist(), [16, 0, 17, 0, 18, 0, 19, 0]);
    assert.deepEqual(layout(x.narrow(1, 1, 2).view(uint8)), [[3, 8], [16, 1], 52]);
    assert.deepEqual(layout(zeros([2, 0]).view(uint8)), [[2, 0], [4, 1], 0]);
  });

  it('joins elements into larger ones along the last dim', () => {
    const x = tensor([1, 0, 2, 0, 3, 0, 4, 0], { dtype: int16 }).reshape([2, 4]);
    assert.deepEqual(x.view(int32).tolist(), [
      [1, 2],
      [3, 4],
    ]);
    assert.deepEqual(x.view(int64).tolist(), [[2 * 2 ** 32 + 1], [4 * 2 ** 32 + 3]]);
    assert.deepEqual(layout(x.select(0, 1).view(int32)), [[2], [1], 2]);
    assert.deepEqual(
      layout(arange(24, { dtype: int16 }).reshape([2, 3, 4]).permute(1, 0, 2).view(int32)),
      [[3, 2, 2], [2, 6, 1], 0],
    );
  });

  const x = arange(12, { dtype: int16 }).reshape([3, 4]);
  const refused: Record<string, [Tensor, DType, RegExp]> = {
    'without dims': [tensor(1), int8, /expected at least one dim/],
    'to smaller ones if its last dim is strided': [x.t(), int8, /a stride of 1 in the last dim/],
    'to larger ones if its last dim is strided': [x.t(), int32, /a stride of 1 in the last dim/],
    'to larger ones that its last dim does not hold': [
      arange(9, { dtype: int16 }).reshape([3, 3]),
      int32,
      /a last dim divisible by 2/,
    ],
    'to larger ones at an odd offset': [x.narrow(1, 1, 2), int32, /storage offset divisible by 2/],
    'to larger ones with odd strides': [
      arange(15, { dtype: int16 }).reshape([3, 5]).narrow(1, 0, 4),
      int32,
      /strides before the last one divisible by 2/,
    ],
  };
  for (const [what, [t, dtype, message]] of Object.entries(refused))
    it(`is refused for elements of another size: ${what}`, () => {
      assert.throws(
        () => t.view(dtype),
        (error) => error instanceof ShapeError && message.test(error.message),
      );
    });

  it('is refused for bools of other bytes, and for words that are no dtypes', () => {
    assert.throws(() => x.view(bool), DtypeError);
    assert.throws(() => x.view('int' as never), DtypeError);
    assert.deepEqual(tensor([true]).view(bool).tolist(), [true]);
  });

  it('has no gradient', () => {
    const leaf = ones([2], { requiresGrad: true });
    const y = leaf.mul(2).view(int32).view(float32);
    assert.equal(y.requiresGrad, false);
    assert.deepEqual(y.tolist(), [2, 2]);
    assert.equal(leaf.view(float32).requiresGrad, false);
  });

  for (const backend of ['eager', 'aot_eager', 'inductor'] as const)
    it(`computes the same when compiled: ${backend}`, () => {
      const doubled = (t: Tensor): Tensor =>
        t
          .mul(4)
          .view(int32)
          .add(1 << 23)
          .view(float32)
          .add(t); // one more in the exponent
      const bytes = (t: Tensor): Tensor => t.add(1).view(uint8).to(int32).sum(1);
      const t = tensor([
        [1, 2, 3],
        [0.25, 9, 1000],
      ]);
      for (const fn of [doubled, bytes])
        assert.deepEqual(compile(fn, { backend })(t).tolist(), fn(t).tolist());
    });

  it('keeps shards of distributed tensors where elements stay on their rank', async () => {
    const results = await onRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2]);
      const whole = arange(16, { dtype: int32 }).reshape([2, 8]);
      const of = async (dim: number, dtype: DType) => {
        const t = distributeTensor(whole, mesh, [Shard(dim)]).view(dtype);
        const values = await valuesOf(t.redistribute([Replicate()]).toLocal());
        assert.deepEqual(values, await valuesOf(whole.view(dtype)));
        return t.placements.join();
      };
      return [await of(0, int16), await of(1, int16), await of(1, float32)];
    });
    for (const placements of results)
      assert.deepEqual(placements, ['Shard(0)', 'Shard(1)', 'Shard(1)']);
  });
});
