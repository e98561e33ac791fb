/**
 * Decompositions of reductions equal their kernels for special values: infinite, NaN, or too few.
 */
import assert from 'node:assert/strict';
import { dispatch } from '../../lib/core/dispatch.js';
import { type AnyOp, opByName } from '../../lib/core/op.js';
import { bfloat16, float16, ones, type Tensor, tensor, zeros } from '../../lib/index.js';

const { NaN: nan, POSITIVE_INFINITY: inf } = Number;
const rows = tensor([
  [nan, 1, 2],
  [inf, -1, 3],
  [-inf, 4, inf],
  [-inf, -inf, -inf],
  [1000, 1001, -inf],
]);

const calls: [what: string, name: string, input: Tensor, params: object][] = [
  ['sums of infinite exponentials', 'logsumexp', rows, { dims: [1] }],
  ['exponentials of nothing', 'logsumexp', zeros([2, 0]), { dims: [1] }],
  ['exponentials of a tensor without dims', 'logsumexp', tensor(2), { dims: [] }],
  ['a variance of one element', 'varMean', tensor([[1, 2]]), { dims: [0], correction: 1 }],
  [
    'a variance of fewer elements than are taken off',
    'varMean',
    tensor([
      [1, 2],
      [3, 5],
    ]),
    { dims: [0], correction: 3 },
  ],
  ['a variance of nothing', 'varMean', zeros([0, 2]), { dims: [0], correction: 0 }],
  [
    'a variance over all dims',
    'varMean',
    tensor([
      [1, 2],
      [3, 5],
    ]),
    { dims: [0, 1], correction: 1 },
  ],
  ['a norm of infinite elements', 'vectorNorm', rows, { dims: [1], order: 2 }],
  [
    'a norm whose squares leave 16 bits',
    'vectorNorm',
    tensor([300, 400], { dtype: float16 }),
    { dims: [0], order: 2 },
  ],
  [
    'a count of elements that are not 0',
    'vectorNorm',
    tensor([0, 3, nan]),
    { dims: [0], order: 0 },
  ],
  ...[3, inf, -inf].map((order): (typeof calls)[number] => [
    `a norm of nothing, of order ${order}`,
    'vectorNorm',
    zeros([0, 2]),
    { dims: [0], order },
  ]),
  ['norms of no rows, of order Infinity', 'vectorNorm', zeros([0, 2]), { dims: [1], order: inf }],
];

describe('the decomposition of a reduction', () => {
  for (const [what, name, input, params] of calls) {
    for (const keepdim of [false, true]) {
      it(`computes ${what}, ${keepdim ? 'with' : 'without'} keepdim: ${name}`, () => {
        const op = opByName(name) as AnyOp;
        const given = { ...params, keepdim };
        const parts = op.decompose?.([input], given) ?? [];
        dispatch(op, [input], given).forEach((expected, i) => {
          const part = parts[i] as Tensor;
          assert.equal(part.shape.join(), expected.shape.join());
          assert.ok(part.allclose(expected, { equalNan: true }), `${part}\nexpected ${expected}`);
        });
      });
    }
  }
});

describe('the decomposition of a normalisation', () => {
  for (const name of ['layerNorm', 'rmsNorm']) {
    it(`accepts rows without elements: ${name}`, () => {
      const input = zeros([3, 8, 0]);
      const op = opByName(name) as AnyOp;
      const weights = name === 'layerNorm' ? [zeros([0]), zeros([0])] : [zeros([0])];
      const given = { width: 0, eps: 1e-5 };
      const parts = op.decompose?.([input, ...weights], given) ?? [];
      assert.deepEqual(
        parts.map((t) => t.shape),
        dispatch(op, [input, ...weights], given).map((t) => t.shape),
      );
      const backward = opByName(`${name}Backward`) as AnyOp;
      const saved = parts.slice(1);
      const grads = backward.decompose?.([input, input, ...saved, input, zeros([0])], given) ?? [];
      assert.deepEqual(grads[0]?.shape, [3, 8, 0]);
    });
  }
});

describe('the decomposition of an op of 16-bit floats', () => {
  const rows = tensor([
    [300, -400, 1],
    [1e-3, 2e-3, 4e-3],
    [60, 61, 62],
  ]);
  const reduced = { dims: [1], keepdim: false, correction: 0, wide: false, order: 2 };
  const normal = { width: 3, eps: 1e-5 };
  const weight = ones([3]);
  const inputs: Record<string, [inputs: Tensor[], params: object]> = {
    varMean: [[tensor([[600, 0, 0, 0, 0, 0, 0, 0, 0, 0]])], reduced],
    vectorNorm: [[rows], reduced],
    logsumexp: [[rows], reduced],
    softmax: [[rows], { dim: 1 }],
    logSoftmax: [[rows], { dim: 1 }],
    layerNorm: [[rows, weight, weight], normal],
    rmsNorm: [[rows, weight], normal],
    addRmsNorm: [[rows, rows, weight], normal],
    geluTanhBackward: [[weight, rows], {}],
  };
  const near = (a: Tensor, b: Tensor, rtol: number): boolean =>
    a.float().allclose(b.float(), { rtol, atol: rtol * 0.1, equalNan: true });

  for (const [name, [given, params]] of Object.entries(inputs)) {
    it(`computes in float32 and keeps the dtypes of the results: ${name}`, () => {
      const op = opByName(name) as AnyOp;
      for (const [dtype, rtol] of [
        [float16, 2e-3],
        [bfloat16, 2e-2],
      ] as const) {
        const narrow = given.map((t) => t.to(dtype));
        const parts = op.decompose?.(narrow, params) ?? [];
        dispatch(op, narrow, params).forEach((expected, i) => {
          const part = parts[i] as Tensor;
          assert.equal(part.dtype, expected.dtype);
          assert.ok(near(part, expected, rtol), `${part}\nexpected ${expected}`);
        });
      }
    });
  }
});
