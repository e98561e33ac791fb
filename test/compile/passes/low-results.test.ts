/** Norms of a lowered graph write the conversions of their results, where a conversion is pure. */
import assert from 'node:assert/strict';
import { lint } from '../../../lib/compile/graph/lint.js';
import { aotAutograd, type Graph } from '../../../lib/compile/index.js';
import {
  amp,
  autograd,
  bfloat16,
  compile,
  float16,
  manualSeed,
  nn,
  randn,
  type Tensor,
} from '../../../lib/index.js';
import { opsOf } from '../partition/joint-graphs.js';

const region = <T>(fn: () => T): T => amp.autocast({ deviceType: 'cpu', dtype: bfloat16 }, fn);

/** Compiles `fn`, checks it against uncompiled code, and returns its graphs. */
function graphsOf(fn: (x: Tensor, w: Tensor) => Tensor): { forward: Graph; backward: Graph } {
  manualSeed(1);
  const [x, w] = [randn([4, 8]).requiresGrad_(), randn([8, 8]).requiresGrad_()];
  const run = (each: typeof fn): Tensor[] => {
    const out = each(x, w);
    return [out, ...(autograd.grad(out.float().square().sum(), [x, w]) as Tensor[])];
  };
  const graphs: Graph[] = [];
  const backend = aotAutograd({
    fwCompiler: (module) => {
      graphs.push(module.graph);
      lint(module.graph);
      return (...inputs) => module.run(inputs);
    },
  });
  const compiled = compile(fn, { backend, fullgraph: true });
  const expected = run(fn);
  for (let i = 0; i < 2; i++)
    run(compiled).forEach((t, k) => {
      assert.ok(t.equal(expected[k] as Tensor), `${k}`);
    });
  const [forward, backward] = graphs as [Graph, Graph];
  return { forward, backward };
}

const forwardOf = (fn: (x: Tensor, w: Tensor) => Tensor): Graph => graphsOf(fn).forward;

const copies = (graph: Graph): number => opsOf(graph).filter((name) => name === 'copy').length;

describe('the pass that lets norms write conversions', () => {
  it('leaves the conversions of weights alone', () => {
    const graph = forwardOf((x, w) => region(() => nn.functional.linear(x.rmsNorm([8]), w)));
    assert.equal(copies(graph), 1);
    assert.match(String(graph), /rmsNorm/);
  });

  it('replaces one conversion that several products read', () => {
    const graph = forwardOf((x, w) =>
      region(() => {
        const y = x.layerNorm([8]);
        return y.matmul(w).mul(y.matmul(w)).add(y);
      }),
    );
    assert.equal(copies(graph), 1);
  });

  it('replaces the first of two conversions to different dtypes', () => {
    const graph = forwardOf((x, w) => {
      const y = x.rmsNorm([8]);
      return y.to(bfloat16).matmul(w.to(bfloat16)).float().add(y.to(float16).float());
    });
    assert.equal(opsOf(graph).filter((name) => name === 'copy').length, 4);
  });

  it('keeps the conversion of a result that changes in place', () => {
    for (const change of ['before', 'after'] as const) {
      const graph = forwardOf((x, w) => {
        const y = x.rmsNorm([8]);
        if (change === 'before') y.mul_(2);
        const low = y.to(bfloat16);
        if (change === 'after') y.mul_(2);
        return low.matmul(w.to(bfloat16)).float().add(y);
      });
      assert.equal(copies(graph), 3, `${change}\n${graph}`);
    }
  });

  it('replaces the conversion of the gradient of a residual stream', () => {
    const { backward } = graphsOf((x, w) =>
      region(() => {
        const h = x.add(nn.functional.linear(x, w));
        return h.add(nn.functional.linear(h.rmsNorm([8]), w));
      }),
    );
    assert.match(String(backward), /rmsNormBackward/);
    assert.equal(copies(backward), 1, 'that of the tangent');
  });

  it('keeps the conversion of a transposed result', () => {
    const graph = forwardOf((x, w) => region(() => w.matmul(x.rmsNorm([8]).t())));
    assert.equal(copies(graph), 2);
  });
});
