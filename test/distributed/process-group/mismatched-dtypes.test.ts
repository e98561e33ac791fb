/** Collectives that only move bytes check dtypes, too, so that no rank reinterprets bits. */
import assert from 'node:assert/strict';
import {
  allGather,
  allGatherIntoTensor,
  allReduce,
  allToAllSingle,
  broadcast,
  CollectiveError,
  functional,
  gather,
  recv,
  scatter,
  send,
} from '../../../lib/distributed.js';
import { type DType, float32, full, int32, ones, type Tensor } from '../../../lib/index.js';
import { describeOverEngines, errorOf, onRanks } from '../support/on-ranks.js';

type Call = (rank: number, make: (count: number, value?: number) => Tensor) => Tensor;

const parts = (make: (count: number) => Tensor, count: number): Tensor[] =>
  Array.from({ length: count }, () => make(2));

const calls: Readonly<Record<string, Call>> = {
  broadcast(_, make) {
    const t = make(2);
    broadcast(t, 0);
    return t;
  },
  allGather(_, make) {
    const all = parts(make, 2);
    allGather(all, make(2));
    return all[0] as Tensor;
  },
  allGatherIntoTensor(_, make) {
    const all = make(4);
    allGatherIntoTensor(all, make(2));
    return all;
  },
  gather(rank, make) {
    gather(make(2), { dst: 0, ...(rank === 0 ? { gatherList: parts(make, 2) } : {}) });
    const after = ones([1]); // nothing of gather is written on other ranks
    allReduce(after);
    return after;
  },
  scatter(rank, make) {
    const own = make(2);
    scatter(own, { src: 0, ...(rank === 0 ? { scatterList: parts(make, 2) } : {}) });
    return own;
  },
  allToAllSingle(_, make) {
    const all = make(2);
    allToAllSingle(all, make(2));
    return all;
  },
  'functional.broadcast': (_, make) => functional.broadcast(make(2), 0),
};

describeOverEngines('tensors that differ between ranks in dtype but not in bytes', () => {
  const maker =
    (rank: number) =>
    (count: number, value = 7): Tensor =>
      full([count], value, { dtype: (rank === 0 ? float32 : int32) as DType });

  for (const [name, call] of Object.entries(calls)) {
    it(`are refused by ${name}, which names both dtypes`, async () => {
      const messages = await onRanks(2, async (rank) => {
        const error = await errorOf(call(rank, maker(rank)).read());
        assert.ok(error instanceof CollectiveError, error.stack);
        return error.message;
      });
      for (const message of messages) {
        assert.match(message, /of \d float32/);
        assert.match(message, /of \d int32/);
        assert.match(
          message,
          /mismatched-dtypes\.test\.\w+:\d+.*mismatched-dtypes\.test\.\w+:\d+/s,
        );
      }
    });
  }

  it('are refused by send and recv', async () => {
    const messages = await onRanks(2, async (rank) => {
      const t = maker(rank)(2);
      if (rank === 0) send(t, 1);
      else recv(t, 0);
      return rank === 1 ? (await errorOf(t.read())).message : '';
    });
    assert.match(
      messages[1] as string,
      /rank 0 sent 2 float32 to rank 1 at .*, which receives 2 int32 at /,
    );
  });
});
