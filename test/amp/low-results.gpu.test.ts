/** On a GPU: norms under mixed precision write the bits of a conversion of their result. */
import assert from 'node:assert/strict';
import { dispatch } from '../../lib/core/dispatch.js';
import { type AnyOp, opByName } from '../../lib/core/op.js';
import { wrapNumber } from '../../lib/core/tensor.js';
import {
  addRmsNorm,
  amp,
  autograd,
  bfloat16,
  float16,
  float32,
  int64,
  nn,
  profiler,
  randn,
  type Tensor,
  tensor,
} from '../../lib/index.js';
import { skipWithoutCuda } from '../skip.js';

/** Rows of warps, of blocks, of persistent blocks, of clusters; unaligned and very long ones. */
const shapes = [
  [3, 8],
  [300, 768],
  [70, 37],
  [65, 1030],
  [9, 1600],
  [33, 4096],
  [17, 8192],
  [5, 16384],
  [3, 50257],
  [2, 300000],
] as const;
const specials = [1, Infinity, -Infinity, NaN, 3e38, 1e-38, 1e-45, 65519, 65520, 1e-7, 0, -0];

/** The elements as float32, bit for bit. */
function bits(t: Tensor): Uint32Array {
  const { buffer, byteOffset, length } = t.toTypedArray();
  return new Uint32Array(buffer, byteOffset, length);
}

describe('norms under mixed precision on a GPU', () => {
  before(function () {
    skipWithoutCuda(this);
  });

  const cuda = { device: 'cuda' } as const;
  for (const name of ['layerNorm', 'rmsNorm', 'addRmsNorm'])
    for (const dtype of [bfloat16, float16])
      it(`have the bits of a conversion: ${name} and ${dtype.name}`, () => {
        const op = opByName(name) as AnyOp;
        for (const [rows, width] of shapes)
          for (const shift of [0, 1]) {
            const memory = randn([rows * width + shift], cuda);
            const x = memory.narrow(0, shift, rows * width).view([rows, width]);
            const factors = tensor(specials, cuda);
            const which = Array.from({ length: width }, (_, i) => i % specials.length);
            const weight = factors.indexSelect(0, tensor(which, { dtype: int64, ...cuda }));
            const inputs = {
              layerNorm: [x, weight, randn([width], cuda)],
              rmsNorm: [x, weight],
              addRmsNorm: [x, randn([rows, width], cuda), weight],
            }[name] as Tensor[];
            const params = { width, eps: 1e-5 };
            const outputs = dispatch(op, inputs, { ...params, low: dtype });
            const [y, own] = [outputs[0] as Tensor, outputs.at(-1) as Tensor];
            assert.deepEqual(bits(own), bits(y.to(dtype)), `${rows} x ${width}, shift ${shift}`);
            const [alone] = dispatch(op, inputs, params) as [Tensor];
            assert.deepEqual(bits(alone), bits(y), `${rows} x ${width}, shift ${shift}`);
          }
      });

  for (const name of ['layerNorm', 'rmsNorm'])
    it(`write the bits of a conversion of the gradient, too: ${name}`, () => {
      const [op, backward] = [name, `${name}Backward`].map((each) => opByName(each) as AnyOp);
      for (const [rows, width] of shapes)
        for (const shift of [0, 1])
          for (const hasMore of [false, true]) {
            const memory = randn([rows * width + shift], cuda);
            const x = memory.narrow(0, shift, rows * width).view([rows, width]);
            const [g, more] = [randn([rows, width], cuda), randn([rows, width], cuda)];
            const absent = wrapNumber(0, float32, x.device);
            const weight = randn([width], cuda);
            const params = { width, eps: 1e-5 };
            const given = name === 'rmsNorm' ? [x, weight] : [x, weight, absent];
            const statistics = dispatch(op as AnyOp, given, params).slice(1);
            const inputs = [g, x, ...statistics, hasMore ? more : absent, weight];
            const what = `${rows} x ${width}, shift ${shift}, ${hasMore}`;
            const [alone] = dispatch(backward as AnyOp, inputs, params) as [Tensor];
            for (const low of [bfloat16, float16]) {
              const outputs = dispatch(backward as AnyOp, inputs, { ...params, low });
              const [gx, own] = [outputs[0] as Tensor, outputs.at(-1) as Tensor];
              assert.deepEqual(bits(own), bits(gx.to(low)), what);
              assert.deepEqual(bits(alone), bits(gx), what);
            }
          }
    });

  it('have the gradients of a conversion by a kernel of its own, and launch none', () => {
    const [x, w, gain] = [
      randn([512, 1600], cuda).requiresGrad_(),
      randn([64, 1600], cuda).requiresGrad_(),
      randn([1600], cuda).requiresGrad_(),
    ];
    const norms = [
      () => x.layerNorm([1600], gain),
      () => x.rmsNorm([1600], gain),
      () => addRmsNorm(x, x.mul(2), [1600], gain)[0],
    ];
    for (const norm of norms) {
      const run = (cacheEnabled: boolean): Tensor =>
        amp.autocast({ deviceType: 'cuda', dtype: bfloat16, cacheEnabled }, () => {
          const y = norm();
          assert.equal(y.dtype, float32);
          return nn.functional.linear(y, w);
        });
      const gradients = (out: Tensor): Tensor[] =>
        autograd.grad(out.float().square().sum(), [x, w, gain]) as Tensor[];
      const [own, apart] = [run(true), run(false)];
      assert.ok(own.equal(apart));
      const expected = gradients(apart);
      gradients(own).forEach((g, i) => {
        assert.ok(g.equal(expected[i] as Tensor), `${i}`);
      });
      const prof = profiler.profile({ activities: ['cpu'] }, () => run(true));
      assert.equal(prof.keyAverages().get('copy')?.count, 1, 'the weight');
    }
  });
});
