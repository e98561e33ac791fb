/** 0-dim and empty tensors in ops along a dim behave as in PyTorch. */
import assert from 'node:assert/strict';
import {
  DtypeError,
  gather,
  IndexError,
  int32,
  int64,
  ones,
  type Tensor,
  tensor,
  where,
  zeros,
} from '../../lib/index.js';

const index = (data: number | number[]): Tensor => tensor(data, { dtype: int64 });
const scalar = (): Tensor => tensor(3);
const three = (): Tensor => tensor([1, 2, 3]);
const bools = (): Tensor => tensor([true, false, true]);

const values: Record<string, [call: () => Tensor | readonly Tensor[], expected: unknown]> = {
  'unfold of one element': [() => scalar().unfold(0, 1, 1), [3]],
  'unfold into an empty window': [() => scalar().unfold(0, 0, 1), []],
  'topk of none': [() => [...scalar().topk(0)], [3, 0]],
  'topk of one': [() => [...scalar().topk(1)], [3, 0]],
  'nonzero as a tuple': [() => scalar().nonzero({ asTuple: true }), [[0]]],
  'nonzero of zero as a tuple': [() => tensor(0).nonzero({ asTuple: true }), [[]]],
  'where of a condition': [() => where(scalar().gt(0)), [[0]]],
  indexFill: [() => scalar().indexFill(0, index([0]), 7), 7],
  'indexFill by an index without dims': [() => scalar().indexFill(0, index(0), 7), 7],
  'indexFill from the end': [() => scalar().indexFill(-1, index([-1]), 7), 7],
  'indexFill of nothing': [() => scalar().indexFill(0, index([]), 7), 3],
  indexFill_: [() => scalar().indexFill_(0, index([0]), 7), 7],
  indexCopy: [() => scalar().indexCopy(0, index([0]), tensor([7])), 7],
  'indexCopy of a source without dims': [() => scalar().indexCopy(0, index(0), tensor(7)), 7],
  'indexCopy of nothing': [() => scalar().indexCopy(0, index([]), tensor([])), 3],
  'indexCopy into a vector of a source without dims': [
    () => ones([3]).indexCopy(0, index(1), tensor(7)),
    [1, 7, 1],
  ],
  indexCopy_: [() => scalar().indexCopy_(0, index([0]), tensor([7])), 7],
  indexAdd: [() => scalar().indexAdd(0, index([0]), tensor([7])), 10],
  'indexAdd twice': [() => scalar().indexAdd(0, index([0, 0]), tensor([7, 7])), 17],
  'indexAdd of nothing': [() => scalar().indexAdd(0, index([]), tensor([])), 3],
  'indexAdd into a vector of a source without dims': [
    () => ones([3]).indexAdd(0, index(1), tensor(7)),
    [1, 8, 1],
  ],
  indexAdd_: [() => scalar().indexAdd_(0, index([0]), tensor([7])), 10],
  scatter: [() => scalar().scatter(0, index([0]), 5), 5],
  'scatter of a tensor': [() => scalar().scatter(0, index([0]), tensor([5])), 5],
  'scatter of a source without dims into a vector': [
    () => ones([3]).scatter(0, index([1]), tensor(5)),
    [1, 5, 1],
  ],
  'scatter into a vector by an index without dims': [
    () => ones([3]).scatter(0, index(1), 5),
    [1, 5, 1],
  ],
  scatter_: [() => scalar().scatter_(0, index([0]), 5), 5],
  'scatterAdd into a vector by an index without dims': [
    () => ones([3]).scatterAdd(0, index(1), tensor(5)),
    [1, 6, 1],
  ],
  'gather by a vector': [() => scalar().gather(0, index([0, 0])), [3, 3]],
  'gather from a vector by an index without dims': [() => gather(three(), 0, index(1)), 2],
  'roll along no dims': [
    () =>
      tensor([
        [0, 1],
        [2, 3],
      ]).roll(1, []),
    [
      [3, 0],
      [1, 2],
    ],
  ],
};

const reduced: Record<string, [sum: boolean[], withoutSelf: boolean[]]> = {
  sum: [
    [true, false, true],
    [true, false, true],
  ],
  prod: [
    [false, false, true],
    [false, false, true],
  ],
  amax: [
    [true, false, true],
    [true, false, true],
  ],
  amin: [
    [false, false, true],
    [false, false, true],
  ],
};

describe('0-dim tensors along a dim', () => {
  for (const [name, [call, expected]] of Object.entries(values)) {
    it(`behave as vectors of one element: ${name}`, () => {
      const result = call();
      assert.deepEqual(
        Array.isArray(result) ? result.map((t) => t.tolist()) : (result as Tensor).tolist(),
        expected,
      );
    });
  }

  it('have strides for their windows in unfold', () => {
    assert.deepEqual(scalar().unfold(0, 1, 1).stride(), [1]);
    assert.deepEqual(scalar().unfold(-1, 1, 2).add(1).tolist(), [4]);
  });

  it('get correct gradients', () => {
    const calls: Record<string, [(x: Tensor) => Tensor, number]> = {
      unfold: [(x) => x.unfold(0, 1, 1), 1],
      'unfold of nothing': [(x) => x.unfold(0, 0, 1), 0],
      topk: [(x) => x.topk(0).values, 1],
      max: [(x) => x.max(0).values, 1],
      indexFill: [(x) => x.indexFill(0, index([0]), 7), 0],
      indexAdd: [(x) => x.indexAdd(0, index([0, 0]), tensor([7, 7])), 1],
      'in place': [(x) => x.mul(2).scatter_(0, index([0]), 5), 0],
      gather: [(x) => x.gather(0, index([0, 0])), 2],
    };
    for (const [name, [call, expected]] of Object.entries(calls)) {
      const x = scalar().requiresGrad_();
      call(x).sum().backward();
      assert.deepEqual(x.grad?.tolist(), expected, name);
    }
  });

  it('are refused by indexSelect without an index', () => {
    assert.throws(() => scalar().indexSelect(0, index([])), /one element, got 0 indices/);
    assert.throws(() => scalar().indexFill(0, index([1]), 7), IndexError);
    assert.throws(() => scalar().flatten(0, 1), IndexError);
  });
});

describe('tensors without elements', () => {
  it('are contiguous in any order of dims', () => {
    const t = zeros([0, 2, 3]).permute(0, 2, 1);
    assert.equal(t.isContiguous(), true);
    assert.deepEqual(t.stride(), [6, 1, 3]);
    assert.equal(t.contiguous(), t);
    assert.deepEqual(t.add(1).shape, [0, 3, 2]);
    assert.deepEqual(zeros([2, 3, 0]).permute(2, 0, 1).reshape(-1, 2).shape, [0, 2]);
  });

  it('have a median of NaN if their dtype has NaN', () => {
    assert.equal(zeros([0]).median().item(), Number.NaN);
    assert.deepEqual(zeros([2, 0]).median().shape, []);
    const x = zeros([0], { requiresGrad: true });
    x.median().backward();
    assert.deepEqual(x.grad?.shape, [0]);
    assert.throws(() => zeros([2, 0]).median(1), IndexError);
    assert.throws(() => zeros([0], { dtype: int32 }).median(), IndexError);
  });

  it('may be an index of any shape, which changes nothing', () => {
    const x = ones([2, 3]);
    const [changed, inPlace] = [x.scatter(0, index([]), 5), x.scatter_(0, index([]), 5)];
    assert.deepEqual(changed.tolist(), x.tolist());
    assert.ok(changed !== x && changed.untypedStorage() !== x.untypedStorage());
    assert.equal(inPlace, x);
    assert.equal(x.gather(1, index([])).numel(), 0);
  });
});

describe('scatterReduce of bools', () => {
  for (const [reduce, results] of Object.entries(reduced)) {
    it(`reduces them by ${reduce}`, () => {
      results.forEach((expected, i) => {
        const result = bools().scatterReduce(
          0,
          index([0, 0, 1]),
          tensor([false, true, false]),
          reduce as 'sum',
          { includeSelf: i === 0 },
        );
        assert.deepEqual(result.tolist(), expected);
      });
    });
  }

  it('refuses the mean', () => {
    assert.throws(() => bools().scatterReduce(0, index([0]), tensor([true]), 'mean'), DtypeError);
  });
});
