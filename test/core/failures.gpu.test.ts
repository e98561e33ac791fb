/** A bad index that only the GPU detects: no value that depends on it can be read. */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { cuda, full, IndexError, int64, KernelError, ones, type Tensor } from '../../lib/index.js';
import { skipWithoutCuda } from '../skip.js';

const device = 'cuda';
const failsLater = (): Tensor =>
  ones([10], { device }).gather(0, full([20_000], 99, { dtype: int64, device }));
const isIndexError = (error: unknown): boolean =>
  error instanceof IndexError && /gather/.test(error.message) && /99/.test(error.message);
const isLost = (error: unknown): boolean =>
  error instanceof KernelError && /has no value/.test(error.message);

describe('after a GPU kernel found a bad index', () => {
  before(function () {
    skipWithoutCuda(this);
  });

  it('pending reads are rejected, small and large ones', async () => {
    await assert.rejects(failsLater().narrow(0, 0, 2).read(), isIndexError);
    await assert.rejects(failsLater().read(), isIndexError);
    await assert.rejects(failsLater().sum().itemAsync(), isIndexError);
  });

  it('tensors computed since the last synchronization have no value', async () => {
    const p = ones([100], { device });
    const good = ones([100], { device });
    cuda.synchronize();
    const bad = failsLater();
    p.mul_(2);
    assert.throws(() => cuda.synchronize(), isIndexError);
    assert.throws(() => bad.tolist(), isLost);
    assert.throws(() => p.tolist(), isLost);
    await assert.rejects(async () => p.read(), isLost);
    assert.equal(good.sum().item(), 100);
    p.fill_(3);
    assert.equal(p.sum().item(), 300);
  });

  it('a later write does not hide the failure', () => {
    const bad = failsLater();
    full([3], 1).to(device);
    assert.throws(() => bad.sum().item(), isIndexError);
    assert.equal(ones([4], { device }).sum().item(), 4);
  });

  it('a later event throws the failure from synchronize and elapsedTime', () => {
    const [begin, end] = [
      new cuda.Event({ enableTiming: true }),
      new cuda.Event({ enableTiming: true }),
    ];
    for (const ask of [() => end.synchronize(), () => begin.elapsedTime(end)]) {
      begin.record();
      failsLater();
      end.record();
      assert.throws(ask, isIndexError);
      cuda.synchronize(); // does not throw again
    }
    end.record();
    end.synchronize();
  });

  it('an event throws the failure also after a later launch', async () => {
    const end = new cuda.Event();
    failsLater();
    end.record();
    await sleep(20);
    ones([4], { device }).mul(2);
    await sleep(20);
    assert.throws(() => end.synchronize(), isIndexError);
    cuda.synchronize(); // does not throw again
  });

  it('values are copied to and from the GPU in chunks and at once', async () => {
    for (const count of [1, 5000, 1 << 20, 5_000_001]) {
      const x = ones([count]).cumsum(0);
      const y = x.to(device);
      assert.deepEqual(await y.read(), await x.read());
      assert.deepEqual(y.toTypedArray(), x.toTypedArray());
    }
  });
});
