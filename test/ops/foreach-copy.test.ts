/** The ops foreachCopy, splitWithSizesCopy and chunkCat: copies of many tensors in one command. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  ArgumentError,
  arange,
  bfloat16,
  bool,
  cat,
  chunkCat,
  type DType,
  empty,
  float16,
  float32,
  float64,
  foreachCopy_,
  IndexError,
  InPlaceError,
  int32,
  int64,
  noGrad,
  ones,
  randn,
  ShapeError,
  splitWithSizesCopy,
  type Tensor,
  tensor,
  uint8,
  zeros,
} from '../../lib/index.js';

const same = (given: Tensor, expected: Tensor, what = ''): void =>
  assert.ok(
    given.dtype === expected.dtype && given.equal(expected),
    `${what}: ${given}\nexpected ${expected}`,
  );

const dtypes: readonly DType[] = [float32, bfloat16, float16, float64, int64, int32, uint8, bool];
const dtype = fc.constantFrom(...dtypes);

/** 0, 1, 2, … converted, in a shape; negative numbers would be undefined in some dtypes. */
const counting = (shape: readonly number[], to: DType, start = 0): Tensor =>
  arange(start, start + shape.reduce((a, b) => a * b, 1), 1, { dtype: float32 })
    .remainder(97)
    .reshape(shape)
    .to(to);

describe('foreachCopy_', () => {
  it('copies each source into its target, and converts it', () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.nat(40), dtype, dtype), { maxLength: 12 }),
        fc.nat(3),
        (list, start) => {
          const sources = list.map(([size, from], i) => counting([size], from, i));
          const targets = list.map(([size, , to]) => zeros([size + start], { dtype: to }));
          const views = targets.map((t) => t.narrow(0, start, (t.shape[0] as number) - start));
          foreachCopy_(views, sources);
          views.forEach((t, i) => same(t, (sources[i] as Tensor).to(t.dtype), `tensor ${i}`));
          for (const t of targets) same(t.narrow(0, 0, start), zeros([start], { dtype: t.dtype }));
        },
      ),
    );
  });

  it('copies between slices of one buffer and parameters, in and out, of more than one command', () => {
    const shapes = Array.from({ length: 300 }, (_, i) => [1 + (i % 7), 1 + (i % 5)]);
    const parameters = shapes.map((shape, i) => counting(shape, float32, i));
    const flat = empty([parameters.reduce((n, t) => n + t.numel(), 0)], { dtype: bfloat16 });
    const slices = flat.split(parameters.map((t) => t.numel()));
    foreachCopy_(
      slices,
      parameters.map((t) => t.reshape(-1)),
    );
    same(flat, cat(parameters.map((t) => t.reshape(-1))).to(bfloat16));
    const back = parameters.map((t) => t.newZeros(t.shape));
    foreachCopy_(
      back,
      slices.map((t, i) => t.view(shapes[i] as number[])),
    );
    back.forEach((t, i) => same(t, (parameters[i] as Tensor).to(bfloat16).float()));
  });

  it('accepts strides, broadcasts, and targets that are also sources, as copy_ in a row does', () => {
    const [a, b, c] = [zeros([3, 2]), zeros([2, 4]).t(), zeros([2, 3])];
    const sources = [counting([2, 3], float32).t(), counting([4, 2], float32), tensor([1, 2, 3])];
    foreachCopy_([a, b], sources.slice(0, 2));
    foreachCopy_([a, c], [sources[0] as Tensor, sources[2] as Tensor]);
    same(a, sources[0] as Tensor);
    same(b, sources[1] as Tensor);
    same(c, tensor([1, 2, 3]).expand([2, 3]).contiguous());
    const [x, y] = [ones([2]), zeros([2])];
    foreachCopy_([x, y], [y, x]);
    assert.deepEqual(
      [x.tolist(), y.tolist()],
      [
        [0, 0],
        [0, 0],
      ],
    );
    foreachCopy_([], []);
  });

  it('is differentiable as copy_ is', () => {
    const [x, w] = [randn([3], { requiresGrad: true }), randn([2], { requiresGrad: true })];
    const [a, b] = [zeros([3]), zeros([2], { dtype: float64 })];
    foreachCopy_([a, b], [x, w]);
    a.mul(2).sum().add(b.mul(3).sum()).backward();
    assert.deepEqual(
      [x.grad?.tolist(), w.grad?.tolist()],
      [
        [2, 2, 2],
        [3, 3],
      ],
    );
    assert.throws(() => foreachCopy_([x, w], [zeros([3]), zeros([2])]), InPlaceError);
    const version = x._version;
    noGrad(() => foreachCopy_([x, w], [ones([3]), ones([2])]));
    assert.deepEqual([x.tolist(), x._version], [[1, 1, 1], version + 1]);
  });

  it('refuses lists that do not fit together', () => {
    assert.throws(() => foreachCopy_([ones([2])], []), ArgumentError);
    assert.throws(() => foreachCopy_(3 as never, []), ArgumentError);
    assert.throws(() => foreachCopy_([ones([2])], [1 as never]), ArgumentError);
    assert.throws(() => foreachCopy_([ones([2])], [ones([3])]), ShapeError);
    assert.throws(() => foreachCopy_([ones([1]).expand([2])], [ones([2])]), InPlaceError);
  });
});

describe('splitWithSizesCopy', () => {
  it('writes the parts along a dim into the tensors of out, and converts them', () => {
    const sizes = fc.array(fc.nat(6), { minLength: 1, maxLength: 9 });
    fc.assert(
      fc.property(sizes, fc.nat(2), fc.nat(4), dtype, dtype, (list, dim, outer, from, to) => {
        const total = list.reduce((a, b) => a + b, 0);
        const shape = [outer, 2, 3].with(dim, total);
        const input = counting(shape, from);
        const out = list.map((size) => zeros(shape.with(dim, size), { dtype: to }));
        assert.equal(splitWithSizesCopy(input, list, dim, { out }), out);
        input.split(list, dim).forEach((t, i) => same(out[i] as Tensor, t.to(to), `part ${i}`));
      }),
    );
  });

  it('unpacks what an all-gather of flat parameters has given', () => {
    // values of torch.split_with_sizes_copy(torch.arange(10).view(2, 5), [3, 2], dim=1, out=...)
    const out = [zeros([2, 3], { dtype: int64 }), zeros([2, 2], { dtype: int64 })];
    splitWithSizesCopy(arange(10).view([2, 5]), [3, 2], { dim: 1, out });
    assert.deepEqual(
      out.map((t) => t.tolist()),
      [
        [
          [0, 1, 2],
          [5, 6, 7],
        ],
        [
          [3, 4],
          [8, 9],
        ],
      ],
    );
  });

  it('accepts inputs and outputs of any strides, and outputs in the memory of the input', () => {
    const input = counting([4, 6], float32).t();
    const out = [zeros([4, 2]).t(), zeros([4, 4]).t()];
    splitWithSizesCopy(input, [2, 4], 0, { out });
    input.split([2, 4]).forEach((t, i) => same(out[i] as Tensor, t));
    const both = counting([4], float32);
    splitWithSizesCopy(both, [2, 2], 0, { out: [both.narrow(0, 2, 2), zeros([2])] });
    assert.deepEqual(both.tolist(), [0, 1, 0, 1]);
  });

  it('accepts many rows', () => {
    const input = counting([5000, 3], float32);
    const out = [zeros([5000, 1], { dtype: bfloat16 }), zeros([5000, 2])];
    splitWithSizesCopy(input, [1, 2], { dim: 1, out });
    same(out[0] as Tensor, input.narrow(1, 0, 1).to(bfloat16));
    same(out[1] as Tensor, input.narrow(1, 1, 2));
  });

  it('gives new tensors without out, which have gradients', () => {
    const x = randn([5], { requiresGrad: true });
    const [a, b] = splitWithSizesCopy(x, [2, 3]) as [Tensor, Tensor];
    a.sum().add(b.mul(2).sum()).backward();
    assert.deepEqual(x.grad?.tolist(), [1, 1, 2, 2, 2]);
    assert.notEqual(a.storage, x.storage);
  });

  it('refuses what does not fit', () => {
    const x = ones([2, 5]);
    const out = [zeros([2, 3]), zeros([2, 2])];
    assert.throws(() => splitWithSizesCopy(x, [3, 3], 1, { out }), ShapeError);
    assert.throws(() => splitWithSizesCopy(x, [2, 3], 1, { out }), ShapeError);
    assert.throws(() => splitWithSizesCopy(x, [5], 1, { out }), ArgumentError);
    assert.throws(() => splitWithSizesCopy(x, 3 as never, 1), ArgumentError);
    assert.throws(() => splitWithSizesCopy(x, [3, 2], 2, { out }), IndexError);
    assert.throws(
      () => splitWithSizesCopy(x.clone().requiresGrad_(), [3, 2], 1, { out }),
      InPlaceError,
    );
  });
});

describe('chunkCat', () => {
  it('joins the chunks of tensors, padded by zeros', () => {
    // values of torch._chunk_cat([torch.arange(1., 6), torch.arange(6., 12).view(3, 2)], 0, 2)
    assert.deepEqual(chunkCat([arange(1, 6), arange(6, 12).view([3, 2])], 0, 2).tolist(), [
      [1, 2, 3, 6, 7, 8, 9],
      [4, 5, 0, 10, 11, 0, 0],
    ]);
  });

  it('gives rows of any tensors, in the dtype of out', () => {
    const shapes = fc.array(fc.tuple(fc.nat(9), fc.array(fc.nat(3), { maxLength: 2 })), {
      minLength: 1,
      maxLength: 6,
    });
    fc.assert(
      fc.property(
        shapes,
        fc.constantFrom([], [2], [2, 3]),
        fc.integer({ min: 1, max: 5 }),
        dtype,
        dtype,
        (list, lead, chunks, from, to) => {
          const tensors = list.map(([size, rest], i) =>
            counting([...lead, size, ...rest], from, i),
          );
          const dim = lead.length;
          const columns = tensors.map((t) => {
            const size = Math.ceil((t.shape[dim] as number) / chunks);
            const missing = t.newZeros(t.shape.with(dim, size * chunks - (t.shape[dim] as number)));
            const inner = t.shape.slice(dim + 1).reduce((a, b) => a * b, size);
            return cat([t, missing], dim).reshape([...lead, chunks, inner]);
          });
          const expected = cat(columns, dim + 1);
          same(chunkCat(tensors, dim, chunks), expected);
          const out = ones(expected.shape, { dtype: to });
          if (from.category <= to.category) {
            assert.equal(chunkCat(tensors, dim, chunks, { out }), out);
            same(out, expected.to(to));
          }
        },
      ),
    );
  });

  it('takes more tensors than one command, and an out of any strides', () => {
    const tensors = Array.from({ length: 300 }, (_, i) => counting([1 + (i % 4)], float32, i));
    const whole = chunkCat(tensors, 0, 2);
    same(whole.select(1, 0), tensor([0, 0]));
    const out = zeros([whole.shape[1] as number, 2]).t();
    chunkCat(tensors, 0, 2, { out });
    same(out, whole);
    const few = zeros([4, 2]).t();
    chunkCat([arange(8, { dtype: float32 })], 0, 2, { out: few });
    same(few, arange(8, { dtype: float32 }).view([2, 4]));
  });

  it('reads tensors of any strides, and has gradients without out', () => {
    const x = randn([2, 3], { requiresGrad: true });
    const y = chunkCat([x.t(), ones([2])], 0, 2);
    same(y.detach(), cat([cat([x.detach().t(), zeros([1, 2])]).reshape([2, 4]), ones([2, 1])], 1));
    y.mul(
      tensor([
        [1, 2, 3, 4, 5],
        [6, 7, 8, 9, 10],
      ]),
    )
      .sum()
      .backward();
    assert.deepEqual(x.grad?.tolist(), [
      [1, 3, 6],
      [2, 4, 7],
    ]);
  });

  it('refuses what does not fit', () => {
    const x = ones([2, 3]);
    assert.throws(() => chunkCat([], 0, 2), ArgumentError);
    assert.throws(() => chunkCat([x], 0, 0), ArgumentError);
    assert.throws(() => chunkCat([x], 2, 1), IndexError);
    assert.throws(() => chunkCat([x, ones([3, 3])], 1, 2), ShapeError);
    assert.throws(() => chunkCat([x, ones([3])], 1, 2), ShapeError);
    assert.throws(() => chunkCat([x], 0, 2, { out: zeros([2, 4]) }), ShapeError);
    assert.throws(
      () => chunkCat([x.clone().requiresGrad_()], 0, 2, { out: zeros([2, 3]) }),
      InPlaceError,
    );
  });
});
