/**
 * Bad input throws an error that names the op and the values; it never crashes or gives wrong
 * numbers.
 */
import assert from 'node:assert/strict';
import {
  ArgumentError,
  AutogradError,
  arange,
  cat,
  crossEntropy,
  DeviceError,
  DtypeError,
  device,
  embedding,
  FreedError,
  full,
  IndexError,
  InPlaceError,
  int64,
  OutOfMemoryError,
  ones,
  optim,
  ShapeError,
  type ShardwiseError,
  tensor,
  zeros,
} from '../../lib/index.js';

type ErrorClass = abstract new (...args: never[]) => ShardwiseError;

const cases: Record<string, [run: () => unknown, kind: ErrorClass, message: RegExp]> = {
  'shapes that do not broadcast': [
    () => ones([2, 3]).add(ones([4])),
    ShapeError,
    /add.*\[2, 3\].*\[4\]/,
  ],
  'different inner sizes of a product': [
    () => ones([2, 3]).matmul(ones([4, 5])),
    ShapeError,
    /3 columns[\s\S]*4 rows/,
  ],
  'different dtypes of a product': [
    () => ones([2, 2]).matmul(ones([2, 2]).double()),
    DtypeError,
    /float64/,
  ],
  'a dim out of range': [() => ones([2, 3]).sum(5), IndexError, /dim 5/],
  'a dim given twice': [() => ones([2, 3]).sum([0, 0]), IndexError, /more than once/],
  'an index out of range': [
    () =>
      ones([3])
        .indexSelect(0, tensor([5], { dtype: int64 }))
        .tolist(),
    IndexError,
    /5.*3/,
  ],
  'a class out of range': [
    () => crossEntropy(ones([1, 3]), tensor([7], { dtype: int64 })).item(),
    IndexError,
    /7/,
  ],
  'class indices that are not int64': [
    () => crossEntropy(ones([3, 3]), tensor([0, 1, 2])),
    ShapeError,
    /crossEntropy.*\[3, 3\].*\[3\].*long/,
  ],
  'an embedding of floats': [() => embedding(ones([2]), ones([3, 4])), DtypeError, /int64/],
  'a ragged array': [() => tensor([[1, 2], [3]]), ShapeError, /ragged/],
  'a string in an array': [
    () => tensor([1, 'two'] as unknown as number[]),
    ArgumentError,
    /string/,
  ],
  'an unknown dtype': [
    () => zeros([2], { dtype: 'float' as never }),
    DtypeError,
    /zeros: expected dtype to be one of float32, .*, bool, got 'float'$/,
  ],
  'a negative size': [() => zeros([-1]), ArgumentError, /-1/],
  'a size that is not a number': [() => full([Number.NaN], 1), ArgumentError, /NaN/],
  'a size beyond memory': [() => zeros([2 ** 50]), ArgumentError, /elements/],
  'a step away from the end': [() => arange(0, 3, -1), ArgumentError, /arange/],
  'a bound of a slice that is not an integer': [
    () => ones([4]).slice(0, 1, Number.NaN),
    ArgumentError,
    /NaN/,
  ],
  'an offset of a diagonal that is not an integer': [
    () => ones([2, 2]).diagonal(0.5),
    ArgumentError,
    /0.5/,
  ],
  'billions of empty chunks': [() => zeros([0]).chunk(2 ** 31), ArgumentError, /chunks/],
  'unbind of a tensor without dims': [() => tensor(1).unbind(), IndexError, /without dims/],
  'rows that do not fit into memory': [
    () =>
      ones([1])
        .expand(3, 2 ** 46)
        .argmax(1)
        .tolist(),
    OutOfMemoryError,
    /scratch/,
  ],
  'a view that needs a copy': [() => ones([2, 3]).t().view(6), ShapeError, /reshape/],
  'a shape that does not fit': [() => ones([2, 3]).reshape(4, -1), ShapeError, /6 elements/],
  'an empty list': [() => cat([]), ArgumentError, /at least one/],
  'a device that is misspelt': [() => device('gpu' as 'cpu'), DeviceError, /gpu/],
  'item() of several elements': [() => ones([2]).item(), ShapeError, /one element/],
  'the largest element of an empty tensor': [() => zeros([0]).amax(), IndexError, /no elements/],
  'requiresGrad_ of integers': [
    () => tensor([1], { dtype: int64 }).requiresGrad_(),
    AutogradError,
    /floating/,
  ],
  'a float added to integers in place': [
    () => tensor([1], { dtype: int64 }).add_(0.5),
    DtypeError,
    /int64/,
  ],
  'an in-place change of an expanded tensor': [
    () => ones([1]).expand(3).add_(1),
    InPlaceError,
    /share memory/,
  ],
  'an optimizer without parameters': [() => new optim.SGD([], { lr: 1 }), ArgumentError, /empty/],
  'a bad hyperparameter': [
    () => new optim.Adam([ones([1], { requiresGrad: true })], { betas: [2, 0.9] }),
    ArgumentError,
    /betas/,
  ],
};

describe('bad input', () => {
  for (const [what, [run, kind, message]] of Object.entries(cases)) {
    it(`throws ${kind.name} for ${what}`, () => {
      assert.throws(run, (error: ShardwiseError) => {
        assert.ok(error instanceof kind, `got ${error}`);
        assert.match(error.message, message);
        assert.match(error.code, /^ERR_/);
        return true;
      });
    });
  }

  it('does not include logits without classes if every target is ignored', () => {
    const ignored = tensor([-100, -100], { dtype: int64 });
    assert.equal(crossEntropy(zeros([2, 0]), ignored, { reduction: 'sum' }).item(), 0);
  });

  it('throws FreedError for every use of a freed tensor', () => {
    const t = ones([3]);
    t.dispose();
    for (const use of [
      () => t.add(1),
      () => t.tolist(),
      () => t.narrow(0, 0, 1),
      () => t.untypedStorage(),
    ])
      assert.throws(use, FreedError);
  });
});
