/** nonzeroAsync, indexAsync and maskedSelectAsync give what the blocking functions give. */
import assert from 'node:assert/strict';
import {
  arange,
  indexAsync,
  int64,
  maskedSelectAsync,
  nonzeroAsync,
  rand,
  type Tensor,
  tensor,
} from '../../lib/index.js';
import { countReads } from './count-reads.js';

const x = arange(24).reshape([2, 3, 4]);
const [rows, whole] = [tensor([true, false]), x.remainder(5).eq(0)];
const calls: Record<string, [blocking: () => Tensor[], other: () => Promise<Tensor[] | Tensor>]> = {
  nonzero: [() => [whole.nonzero()], () => nonzeroAsync(whole)],
  'nonzero as vectors': [
    () => whole.nonzero({ asTuple: true }),
    () => whole.nonzeroAsync({ asTuple: true }),
  ],
  'nonzero of no dims': [
    () => tensor(3).nonzero({ asTuple: true }),
    () => nonzeroAsync(tensor(3), { asTuple: true }),
  ],
  maskedSelect: [() => [x.maskedSelect(whole)], () => maskedSelectAsync(x, whole)],
  'maskedSelect with a mask of fewer dims': [
    () => [x.maskedSelect(whole.select(0, 0))],
    () => x.maskedSelectAsync(whole.select(0, 0)),
  ],
  'index with masks and indices': [
    () => [x.index([rows, tensor([2], { dtype: int64 }), null])],
    () => indexAsync(x, [rows, tensor([2], { dtype: int64 }), null]),
  ],
  'index with a mask behind a whole dim': [
    () => [x.index([null, whole.select(0, 0)])],
    () => x.indexAsync([null, whole.select(0, 0)]),
  ],
  'index with a mask without dims': [
    () => [x.index([tensor(true)])],
    () => x.indexAsync([tensor(true)]),
  ],
};

describe('an op whose shape depends on values, with Async in its name,', () => {
  for (const [what, [blocking, other]] of Object.entries(calls))
    it(`gives what the blocking one gives, without waiting: ${what}`, async () => {
      let promise: Promise<Tensor[] | Tensor> = Promise.resolve([]);
      assert.equal(
        countReads(() => {
          promise = other();
        }),
        0,
      );
      const found = await promise;
      const lists = (ts: readonly Tensor[]) => ts.map((t) => [t.shape, t.tolist()]);
      assert.deepEqual(lists(Array.isArray(found) ? found : [found]), lists(blocking()));
    });

  it('reads the mask at the call', async () => {
    const mask = tensor([true, false, true]);
    const promise = arange(3).maskedSelectAsync(mask);
    mask.logicalNot_();
    assert.deepEqual((await promise).tolist(), [0, 2]);
  });

  it('has the gradient of the blocking one', async () => {
    const w = rand([4], { requiresGrad: true });
    const mask = tensor([true, false, true, false]);
    (await w.maskedSelectAsync(mask)).sum().backward();
    assert.deepEqual(w.grad?.tolist(), [1, 0, 1, 0]);
  });

  it('rejects with what the blocking one throws', async () => {
    await assert.rejects(x.indexAsync([rows, rows]), /does not cover dims 1\.\./);
    await assert.rejects(x.maskedSelectAsync(x), /maskedSelectAsync: expected a bool mask/);
    await assert.rejects(nonzeroAsync(3 as never), /nonzeroAsync: /);
  });
});
