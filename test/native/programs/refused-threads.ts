/**
 * Works while the system refuses threads, with refusals.c preloaded; see
 * refused-threads.test.ts. Prints what came out as JSON.
 */
import { rmSync, writeFileSync } from 'node:fs';
import { allReduce, launch } from '../../../lib/distributed.js';
import { arange, float32, full, int64, memory, type Tensor } from '../../../lib/index.js';

const file = process.env['SHARDWISE_TEST_NO_THREADS'] as string;

/** Products that workers share, commands that queue, and a sum of 1 to 300. */
const work = (): Tensor => {
  const a = full([300, 300], 1);
  const b = a.matmul(a).div(300);
  let x = arange(1, 301, 1, { dtype: float32 }).expand([300, 300]).mul(b);
  for (let i = 0; i < 20; i++) x = x.add(1).sub(1);
  return x.sum(1).mean();
};

const sums = () =>
  launch(3, async (rank) => {
    const t = full([4], rank + 1);
    allReduce(t);
    return t.sum().itemAsync();
  }).then(
    (results) => ({ results, name: '', message: '' }),
    (error: Error & { cause?: Error }) => ({
      results: [],
      name: error.cause?.name ?? '',
      message: error.message,
    }),
  );

/** The class of the error of an operation that fails when its stream comes to it. */
async function caught(run: () => Promise<unknown>): Promise<string> {
  try {
    await run();
    return 'none';
  } catch (error) {
    return (error as Error).constructor.name;
  }
}

writeFileSync(file, '');
const alone = { blocking: work().item(), awaited: await work().itemAsync() };
const index = await caught(() =>
  arange(3)
    .indexSelect(0, full([2 ** 17], 7, { dtype: int64 }))
    .read(),
);
full([2 ** 24], 1).dispose(); // a large block goes back to the system
memory.emptyCache();
const refused = await sums();
rmSync(file);
const after = { blocking: work().item(), ...(await sums()) };
console.log(JSON.stringify({ alone, index, refused, after }));
