/** Scenarios of local ranks over gloo, in a separate process; prints the result. */
import {
  allReduce,
  broadcast,
  launch,
  recv,
  reduceScatterTensor,
  send,
} from '../../../lib/distributed.js';
import { full, zeros } from '../../../lib/index.js';

/** More than is reduced at once, and than goes in one piece. */
const MANY = 20_000_003;

async function large(): Promise<unknown> {
  const results = await launch(
    3,
    async (rank) => {
      const x = full([MANY], rank + 1);
      allReduce(x);
      const told = full([2_000_001], rank);
      broadcast(told, 1);
      const part = zeros([1_500_000]);
      reduceScatterTensor(part, full([4_500_000], rank));
      const seen: number[] = [];
      for (let i = 0; i < 40; i++) {
        const message = full([i % 5 === 0 ? 30_000 : 3], i);
        if (rank === 0) send(message, 2);
        else if (rank === 2) {
          recv(message.fill_(-1), 0);
          seen.push(
            (await message.amax().itemAsync()) as number,
            (await message.amin().itemAsync()) as number,
          );
        }
      }
      const extremes = await Promise.all(
        [x.amin(), x.amax(), told.amin(), told.amax(), part.amin(), part.amax()].map((t) =>
          t.itemAsync(),
        ),
      );
      return (
        extremes.join() === '6,6,1,1,3,3' && seen.every((value, i) => value === Math.floor(i / 2))
      );
    },
    { backend: 'gloo', timeoutMs: 30_000 },
  );
  return { results };
}

async function missing(): Promise<unknown> {
  process.env['SHARDWISE_GLOO_ENGINE'] = '/nowhere/gloo-engine.so';
  try {
    await launch(2, () => 0, { backend: 'gloo' });
    return { message: 'no error' };
  } catch (error) {
    return { message: (error as Error).message };
  }
}

console.log(JSON.stringify(await (process.argv[2] === 'large' ? large() : missing())));
