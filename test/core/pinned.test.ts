/**
 * Pinned memory without CUDA is refused with the reason; copies with nonBlocking work as usual.
 * With CUDA: pinned.gpu.test.ts.
 */
import assert from 'node:assert/strict';
import { FakeTensorMode } from '../../lib/compile/index.js';
import {
  cuda,
  DeviceError,
  empty,
  FreedError,
  int32,
  memory,
  ones,
  rand,
  type Tensor,
  tensor,
  zeros,
} from '../../lib/index.js';
import { skipBecause } from '../skip.js';

describe('pinned memory', () => {
  it('is refused without CUDA by an error that says why and what to do', function () {
    const unavailable = cuda.whyUnavailable();
    if (unavailable === null) skipBecause(this, 'CUDA is there');
    const makers: Record<string, () => Tensor> = {
      pinMemory: () => ones([2, 3]).pinMemory(),
      empty: () => empty([3], { pinMemory: true }),
      zeros: () => zeros([3], { pinMemory: true }),
      tensor: () => tensor([1, 2], { pinMemory: true }),
      rand: () => rand([3], { pinMemory: true }),
    };
    for (const [name, make] of Object.entries(makers)) {
      assert.throws(make, (error: unknown) => {
        assert.ok(error instanceof DeviceError, name);
        assert.equal(error.code, 'ERR_DEVICE');
        assert.match(
          error.message,
          /^pinMemory: pinned memory is for copies to and from a GPU.*cuda\.isAvailable\(\)/,
        );
        assert.ok(error.message.includes(unavailable.reason), error.message);
        return true;
      });
    }
    assert.equal(memory.stats().pinnedBytes, 0);
  });

  it('is not the memory of an ordinary tensor', () => {
    const t = ones([3]);
    assert.equal(t.isPinned(), false);
    assert.equal(t.untypedStorage().isPinned(), false);
    assert.equal(ones([3], { pinMemory: false }).isPinned(), false);
    assert.equal(
      new FakeTensorMode().run(() => zeros([3]).isPinned()),
      false,
    );
    t.dispose();
    assert.throws(() => t.isPinned(), FreedError);
  });

  it('is not needed for nonBlocking copies between CPU tensors, which change nothing', () => {
    const x = tensor([1.5, 2.5]);
    assert.equal(x.to('cpu', { nonBlocking: true }), x);
    assert.deepEqual(x.to(int32, { nonBlocking: true }).tolist(), [1, 2]);
    assert.deepEqual(zeros([2, 2]).copy_(x, { nonBlocking: true }).tolist(), [
      [1.5, 2.5],
      [1.5, 2.5],
    ]);
  });
});
