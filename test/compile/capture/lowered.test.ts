/** What a captured function does to leaves reaches the real ones, whatever the backend. */
import assert from 'node:assert/strict';
import { compile, nn, type Tensor, tensor } from '../../../lib/index.js';

const programs: Record<string, (w: Tensor) => Tensor[]> = {
  'a hook on a leaf, which stays there': (w) => {
    w.registerHook((g) => g.mul(100));
    return [w.mul(2)];
  },
  'a hook after accumulation': (w) => {
    w.registerPostAccumulateGradHook((p) => {
      p.grad = (p.grad as Tensor).mul(3);
    });
    return [w.mul(2)];
  },
  'a leaf on the memory of an argument': (w) => {
    const inner = w.data.requiresGrad_();
    return [inner.mul(w), inner];
  },
  'a Parameter on computed memory': (w) => {
    const p = new nn.Parameter(w.add(1));
    return [p.mul(w), p];
  },
};

describe('a function compiled by aot_eager', () => {
  for (const [what, fn] of Object.entries(programs)) {
    it(`makes what eager code makes: ${what}`, () => {
      const [eager, compiled] = [fn, compile(fn, { backend: 'aot_eager' })].map((run) => {
        const w = tensor([1, -2], { requiresGrad: true });
        return [1, 2, 3].map((k) => {
          const results = run(w);
          (results[0] as Tensor).mul(k).sum().backward();
          return [w, ...results].map((t) => [
            t.constructor.name,
            t.tolist(),
            t.requiresGrad,
            t.isLeaf ? (t.grad?.tolist() ?? null) : 'inner',
          ]);
        });
      });
      assert.deepEqual(compiled, eager);
    });
  }
});
