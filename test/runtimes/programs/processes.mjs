// Ranks as processes: results, an error of one, the death of one, and a program as a file.
import assert from 'node:assert/strict';
import { fileURLToPath } from 'node:url';
import { isMainThread } from 'node:worker_threads';
import { tensor } from 'shardwise';
import { allReduce, initProcessGroup, launch } from 'shardwise/distributed';

const own = fileURLToPath(import.meta.url);
const options = { mode: 'process', timeoutMs: 60_000 };

if (process.argv.includes('as a file')) {
  await initProcessGroup();
  const x = tensor([1]);
  await allReduce(x);
  assert.equal(x.item(), 2);
} else {
  const reduce = async (rank) => {
    const x = tensor([rank, 1]);
    await allReduce(x);
    return { rank, sum: x.tolist(), large: 2n ** 70n, map: new Map([[1, 'one']]) };
  };
  const expected = [0, 1].map((rank) => ({
    rank,
    sum: [1, 2],
    large: 2n ** 70n,
    map: new Map([[1, 'one']]),
  }));
  assert.deepEqual(await launch(2, reduce, options), expected);

  const throws = async (rank) => {
    if (rank === 1) throw new RangeError('too far');
    return reduce(rank);
  };
  await assert.rejects(launch(2, throws, options), (error) => {
    assert.match(error.message, /rank 1 .*too far/s);
    return error.cause instanceof RangeError;
  });

  const dies = async (rank) => {
    if (rank === 1) process.kill(process.pid, 'SIGKILL');
    return reduce(rank);
  };
  const end = process.platform === 'win32' ? 'exit code 1' : 'SIGKILL'; // Windows has no signals
  await assert.rejects(launch(2, dies, options), new RegExp(`rank 1 .*${end}`, 's'));

  assert.ok(isMainThread);
  await launch(2, own, { args: ['as a file'], timeoutMs: 60_000 });
}
