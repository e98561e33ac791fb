/** Residual additions and the norms that read their sums are one call. */
import assert from 'node:assert/strict';
import { autocast } from '../../../lib/amp/autocast.js';
import { decomposed } from '../../../lib/core/decompose.js';
import { dispatch } from '../../../lib/core/dispatch.js';
import type { AnyOp, Sample } from '../../../lib/core/op.js';
import {
  bfloat16,
  compile,
  type DType,
  float16,
  float32,
  float64,
  layerNorm,
  nn,
  randn,
  rmsNorm,
  type Tensor,
} from '../../../lib/index.js';
import { addRmsNormOp } from '../../../lib/ops/add-rms-norm.js';
import { layerNormOp } from '../../../lib/ops/layer-norm.js';
import { rmsNormOp } from '../../../lib/ops/rms-norm.js';
import { exactly } from '../schedule/lowered.js';
import { callsOf, fusedGraph } from './fused.js';

const x = (...shape: number[]): Tensor => randn(shape);
const calls = (fn: (...inputs: Tensor[]) => Tensor[], ...inputs: Tensor[]): string[] =>
  callsOf(fusedGraph(fn, inputs));

describe('norms of residual additions', () => {
  for (const branch of [bfloat16, float16, undefined] as (DType | undefined)[])
    it(`are one call where the branch has ${branch?.name ?? 'the dtype of the sum'}`, () => {
      const [a, b, w] = [x(4, 40), x(4, 40).to(branch ?? float32), x(40)];
      const rms = calls((p, q, v) => [rmsNorm(p.add(q), [40], v), p.add(q)], a, b, w);
      assert.deepEqual(rms, ['addRmsNorm', 'add']);
      const layer = calls(
        (p, q, v) => {
          const sum = q.add(p);
          return [layerNorm(sum, [40], v, v), sum.matmul(sum.t())];
        },
        a,
        b,
        w,
      );
      assert.deepEqual(layer, ['addLayerNorm', 'transpose', 'matmul']);
    });

  it('are so in other dtypes, without weights and over several dims', () => {
    for (const dtype of [bfloat16, float64])
      assert.deepEqual(
        calls((p, q) => [rmsNorm(p.add(q), [5, 8])], x(4, 5, 8).to(dtype), x(4, 5, 8).to(dtype)),
        ['addRmsNorm'],
      );
    assert.deepEqual(
      calls((p, q) => [layerNorm(p.add(q), [8])], x(0, 8), x(0, 8)),
      ['addLayerNorm'],
    );
  });

  it('stay where the sum broadcasts, is scaled, or is fused with what makes a summand', () => {
    const w = x(8);
    assert.deepEqual(
      calls((p, q) => [rmsNorm(p.add(q), [8])], x(4, 8), w),
      ['add', 'rmsNorm'],
    );
    assert.deepEqual(
      calls((p, q) => [rmsNorm(p.add(q, { alpha: 2 }), [8])], x(4, 8), x(4, 8)),
      ['add', 'rmsNorm'],
    );
    assert.deepEqual(
      calls((p, q) => [rmsNorm(p.add(q.exp()), [8])], x(4, 8), x(4, 8)),
      ['fused 2', 'rmsNorm'],
    );
    assert.deepEqual(
      calls((p, q) => [rmsNorm(p.t().add(q.t()), [4])], x(4, 8), x(4, 8)).at(-1),
      'rmsNorm',
    );
  });

  it('stay where memory changes between, and where the weight is computed later', () => {
    const changed = calls(
      (p, q, w) => {
        const sum = p.add(q);
        w.add_(1);
        return [rmsNorm(sum, [8], w)];
      },
      x(4, 8),
      x(4, 8),
      x(8),
    );
    assert.deepEqual(changed, ['add', 'add', 'rmsNorm']);
    const late = calls(
      (p, q) => {
        const sum = p.add(q);
        return [rmsNorm(sum, [8], sum.sum(0))];
      },
      x(4, 8),
      x(4, 8),
    );
    assert.deepEqual(late, ['add', 'sum', 'rmsNorm']);
  });

  it('are the first of several norms of a sum', () => {
    const two = calls(
      (p, q) => {
        const sum = p.add(q);
        return [rmsNorm(sum, [8]), layerNorm(sum, [8])];
      },
      x(4, 8),
      x(4, 8),
    );
    assert.deepEqual(two, ['addRmsNorm', 'layerNorm']);
  });

  for (const op of [rmsNormOp, layerNormOp, addRmsNormOp] as AnyOp[])
    it(`are written in 16 bits alone by ${op.name}, with the same bits`, () => {
      const [{ inputs: operands, params: own }] = op.samples() as [Sample<object>];
      const params = { ...own, low: bfloat16 };
      for (const run of [dispatch, decomposed] as const) {
        const [, ...both] = run(op, operands, params) as readonly Tensor[];
        const [low, ...others] = run(op, operands, { ...params, alone: true }) as [Tensor];
        const expected = [both.at(-1) as Tensor, ...both.slice(0, -1)];
        assert.deepEqual([low, ...others].map(exactly), expected.map(exactly));
      }
    });

  for (const Norm of [nn.RMSNorm, nn.LayerNorm])
    it(`train blocks with ${Norm.name} under autocast as uncompiled code does`, () => {
      class Block extends nn.Module<[x: Tensor], Tensor> {
        n1 = new Norm(32);
        n2 = new Norm(32);
        a = new nn.Linear(32, 32);
        b = new nn.Linear(32, 32);
        override forward(t: Tensor): Tensor {
          const first = t.add(this.a(this.n1(t)));
          return first.add(this.b(this.n2(first)));
        }
      }
      const block = new Block();
      const t = x(3, 5, 32);
      const compiled = compile(block, { backend: 'inductor' });
      const [expected, got] = [block, compiled].map((fn) => {
        const leaf = t.detach().requiresGrad_();
        block.zeroGrad();
        const y = autocast({ deviceType: 'cpu', dtype: bfloat16 }, () => fn(leaf));
        y.mul(3).sum().backward();
        const grads = [leaf, ...block.parameters()].map((p) => (p.grad as Tensor).tolist());
        return [y.tolist(), ...grads];
      });
      assert.deepEqual(got, expected);
    });
});
