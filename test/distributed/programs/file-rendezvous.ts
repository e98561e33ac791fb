/**
 * Runs as a rank that uses a file as rendezvous, in a world of two by default; prints a sum over
 * all ranks, or the error. It may be killed before it ends.
 */
import { allReduce, destroyProcessGroup, initProcessGroup } from '../../../lib/distributed.js';
import { full } from '../../../lib/index.js';

const [file, rank, end = '', timeoutMs = '20000', worldSize = '2'] = process.argv.slice(2) as [
  string,
  string,
  string?,
  string?,
  string?,
];
const options = {
  initMethod: `file://${file}`,
  rank: Number(rank),
  worldSize: Number(worldSize),
  timeoutMs: Number(timeoutMs),
};

async function sum(): Promise<number> {
  await initProcessGroup(options);
  const t = full([1], 1 + options.rank);
  allReduce(t);
  return Number((await t.read())[0]);
}

try {
  if (end === 'elsewhere' && rank === '0') {
    for (const other of [
      { rank: 0, worldSize: 1 },
      { ...options, worldSize: 1, initMethod: `file://${file}-elsewhere` },
    ]) {
      await initProcessGroup(other);
      destroyProcessGroup();
    }
  }
  const seen = [await sum()];
  if (end === 'anew') {
    destroyProcessGroup();
    seen.push(await sum());
  }
  process.stdout.write(JSON.stringify(seen));
} catch (error) {
  process.stdout.write(JSON.stringify((error as Error).message));
}
