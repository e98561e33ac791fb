// Ranks as functions of one process; a mismatch names the places in the program.
import assert from 'node:assert/strict';
import { tensor } from 'shardwise';
import { allReduce, launch } from 'shardwise/distributed';

const sums = await launch(4, async (rank) => {
  const x = tensor([rank + 1]);
  await allReduce(x);
  return x.item();
});
assert.deepEqual(sums, [10, 10, 10, 10]);

const mismatched = launch(2, async function reduceTwice(rank) {
  const x = tensor(rank === 0 ? [1] : [1, 2]);
  await allReduce(x);
  return x.tolist();
});
await assert.rejects(mismatched, /at reduceTwice \(.*local\.mjs:15:\d+\)/);
