/**
 * Results after an asynchronous failure of a command: values that were not computed cannot be read.
 */
import assert from 'node:assert/strict';
import {
  full,
  IndexError,
  int64,
  KernelError,
  ones,
  type Tensor,
  tensor,
} from '../../lib/index.js';

/** So much work that what follows is queued behind it. */
function busy(): void {
  const a = ones([1200, 1200]);
  a.matmul(a).dispose();
}

const badIndices = (count: number): Tensor => full([count], 99, { dtype: int64 });
const failsLater = (): Tensor => ones([10]).gather(0, badIndices(20_000));
const isIndexError = (error: unknown): boolean =>
  error instanceof IndexError && /gather/.test(error.message) && /99/.test(error.message);
const isLost = (error: unknown): boolean =>
  error instanceof KernelError &&
  /has no value/.test(error.message) &&
  /gather/.test(error.message);

describe('after a command has failed on its stream', () => {
  it('the next read throws the failure', () => {
    const good = tensor([1, 2, 3]);
    busy();
    failsLater();
    assert.throws(() => good.sum().item(), isIndexError);
    assert.deepEqual(good.tolist(), [1, 2, 3]);
  });

  it('skipped results cannot be read, whether in place or new', () => {
    const p = ones([100_000]);
    const q = ones([2]);
    busy();
    const bad = failsLater();
    p.mul_(2);
    const r = p.add(1);
    assert.throws(() => bad.sum().item(), isIndexError);
    for (const t of [bad, p, r]) assert.throws(() => t.narrow(0, 0, 2).tolist(), isLost);
    assert.throws(() => p.add(1), isLost);
    assert.throws(() => q.add_(r.narrow(0, 0, 2)), isLost);
    assert.deepEqual(q.add(1).tolist(), [2, 2]);
  });

  it('a tensor has a value again once it is overwritten completely, but not in part', () => {
    const p = ones([100_000]);
    busy();
    const bad = failsLater();
    p.mul_(2);
    assert.throws(() => bad.sum().item(), isIndexError);
    p.narrow(0, 0, 10).fill_(1);
    assert.throws(() => p.narrow(0, 0, 2).tolist(), isLost);
    p.fill_(3);
    assert.deepEqual(p.narrow(0, 0, 2).add(1).tolist(), [4, 4]);
  });

  it('every pending read of a skipped result is rejected', async () => {
    busy();
    const good = full([20_000], 3);
    await good.read();
    busy();
    const bad = failsLater();
    const reads = await Promise.allSettled([bad.read(), bad.read(), bad.add(1).read()]);
    assert.deepEqual(
      reads.map(({ status }) => status),
      ['rejected', 'rejected', 'rejected'],
    );
    await assert.rejects(bad.read(), isLost);
    assert.equal((await good.read())[0], 3);
  });

  it('later results are right', async () => {
    busy();
    await assert.rejects(failsLater().read(), isIndexError);
    assert.deepEqual(ones([3]).mul(2).tolist(), [2, 2, 2]);
    assert.deepEqual([...(await ones([2]).read())], [1, 1]);
  });
});
