/** What functions in lazy segments hold, and when it is freed. */
import assert from 'node:assert/strict';
import type { BackendName } from '../../../lib/compile/backends.js';
import {
  compile,
  graphBreak,
  memory,
  ones,
  scope,
  type Tensor,
  zeros,
} from '../../../lib/index.js';

const BACKENDS = ['eager', 'aot_eager', 'aot_eager_decomp_partition'] as const;

/** A function that cannot be captured, because it begins with a break. */
function broken<A extends readonly unknown[], R>(
  fn: (...args: A) => R,
  backend: BackendName = 'aot_eager',
): (...args: A) => R {
  return compile((...args: A) => (graphBreak(), fn(...args)), { backend });
}

describe('a lazy segment', () => {
  it('takes the memory that an uncompiled call takes', () => {
    const fn = (x: Tensor): Tensor => {
      const y = scope(() => x.mul(2).add(1).sqrt());
      return y.sum().item<number>() > 0 ? y.mul(3) : y;
    };
    const x = ones([1000]);
    const bytesOf = (call: typeof fn): number =>
      scope(() => {
        const before = memory.stats().allocatedBytes;
        call(x);
        return memory.stats().allocatedBytes - before;
      });
    for (const backend of BACKENDS) {
      const run = broken(fn, backend);
      run(x);
      assert.equal(bytesOf(run), bytesOf(fn), backend);
    }
  });

  it('frees in a backward pass what nothing reads any more, where it runs op by op', () => {
    const w = ones([64, 64], { requiresGrad: true });
    const x = ones([8, 64]);
    const step = (): void => {
      const hidden = x.matmul(w.t()).sin().matmul(w.t()).cos();
      hidden.matmul(w.t()).sum().backward();
    };
    const peakOf = (run: () => void): number => {
      w.grad = null;
      memory.collect();
      memory.resetPeak();
      const before = memory.stats().allocatedBytes;
      scope(run);
      return memory.stats().peakAllocatedBytes - before;
    };
    const run = broken(step, 'eager');
    run();
    const [peak, most] = [peakOf(run), peakOf(step)];
    assert.ok(peak <= most, `${peak} bytes, ${most} uncompiled`);
  });

  it('has run when garbage is collected, and holds none of its tensors then', () => {
    const fn = broken((x: Tensor) => {
      memory.collect();
      const before = memory.stats().allocatedBytes;
      const use = (y: Tensor): number[] => [y.sum().item(), y.add(1).sum().item()];
      assert.deepEqual(use(x.mul(2)), [2000, 3000]);
      x.mul(2).add(1);
      memory.collect();
      return memory.stats().allocatedBytes - before;
    });
    for (let i = 0; i < 3; i++) assert.equal(fn(ones([1000])), 0);
  });

  it('does not hold the scope that it was in', () => {
    const fn = broken((x: Tensor) => {
      memory.collect();
      const before = memory.stats().allocatedBytes;
      const y = zeros([1]);
      scope(() => y.set_(x.mul(2))); // y owns what the scope made
      y.dispose();
      memory.collect();
      return memory.stats().allocatedBytes - before;
    });
    for (let i = 0; i < 3; i++) assert.equal(fn(ones([1000])), 0);
  });
});
