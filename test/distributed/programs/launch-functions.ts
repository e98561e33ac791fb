/**
 * Launches functions as processes, the second with the result of the first; prints all results.
 * Other scenarios have ranks that fail or wait forever.
 */
import {
  allReduce,
  DistributedError,
  getRank,
  initProcessGroup,
  launch,
} from '../../../lib/distributed.js';
import { full, ones, ShapeError } from '../../../lib/index.js';

async function sumOf(
  rank: number,
): Promise<{ rank: number; sum: Float32Array; known: Map<string, bigint> }> {
  await initProcessGroup(); // as a program for both modes would: all is set up
  const t = full([2], rank + 1);
  allReduce(t);
  return {
    rank: getRank(),
    sum: (await t.read()) as Float32Array,
    known: new Map([['rank', BigInt(rank)]]),
  };
}

const scenario = process.argv[2];
if (scenario === 'twice') {
  const first = await launch(2, sumOf, { mode: 'process' });
  const second = await launch(
    2,
    async (rank) => ((first[rank] as (typeof first)[0]).sum[0] as number) + rank,
    { mode: 'process' },
  );
  process.stdout.write(
    JSON.stringify({
      first: first.map(({ rank, sum, known }) => [rank, [...sum], String(known.get('rank'))]),
      second,
    }),
  );
} else if (scenario === 'failed') {
  const caught = await launch(
    2,
    (rank) => {
      if (rank === 1) ones([2]).add(ones([3]));
    },
    { mode: 'process' },
  ).catch((error: unknown) => error);
  const { cause, details } = caught as DistributedError;
  const seen = [
    caught instanceof DistributedError,
    details['rank'],
    cause instanceof ShapeError,
    (cause as ShapeError).details,
  ];
  process.stdout.write(
    JSON.stringify([seen, ...(await launch(2, () => seen, { mode: 'process' }))]),
  );
} else if (scenario === 'stuck') {
  const waits = async (rank: number): Promise<void> => {
    if (rank === 1) await new Promise(() => {});
    if (process.argv[3] === 'alone') return;
    const t = full([1], 1);
    allReduce(t);
    await t.read();
  };
  const error = await launch(2, waits, { timeoutMs: 300 }).catch((caught: Error) => caught);
  const { message, cause } = error as Error;
  process.stdout.write(
    JSON.stringify({
      message,
      cause: (cause as Error | undefined)?.message ?? null,
      next: await launch(2, (rank) => rank),
    }),
  );
} else if (scenario === 'unread') {
  const differs = async (rank: number): Promise<string> => {
    const t = full([1 + rank], 1);
    allReduce(t, { asyncOp: true });
    if (process.argv[3] === 'handled') await t.read().catch(() => {});
    return 'returned';
  };
  const outcome = await launch(2, differs, { mode: 'process' }).catch(
    (caught: Error) => caught.message,
  );
  process.stdout.write(JSON.stringify(outcome));
} else if (scenario === 'exits') {
  const ends = async (rank: number): Promise<unknown> => {
    const t = full([1], 1);
    allReduce(t);
    await t.read();
    if (rank === 1) process.exit(3);
    allReduce(t);
    return t.tolist(); // fails for want of rank 1, maybe before that one is seen to be gone
  };
  const error = await launch(3, ends, { mode: 'process' }).catch((caught: Error) => caught);
  process.stdout.write(JSON.stringify((error as Error).message));
} else {
  const fails = async (rank: number): Promise<unknown> => {
    if (rank === 1) throw Object.assign(new RangeError('too far'), { code: 'ERR_FAR' });
    const t = full([1], 1);
    allReduce(t);
    return t.read();
  };
  const error = await launch(2, fails, { mode: 'process' }).catch((caught: Error) => caught);
  const { message, cause } = error as Error & { cause: Error & { code: string } };
  process.stdout.write(
    JSON.stringify({
      message,
      cause: { name: cause.name, message: cause.message, code: cause.code, stack: cause.stack },
    }),
  );
}
