/**
 * Scenarios of ranks that are processes, one of which compiles while others wait for it or for a
 * rank that waits for it. Each rank writes what it saw to a file.
 */
import { readdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  allReduce,
  type CollectiveError,
  functional,
  getRank,
  initProcessGroup,
  newGroup,
} from '../../../lib/distributed.js';
import { type CompileBackend, compile, compiler, ones, type Tensor } from '../../../lib/index.js';

const [scenario, folder, blockMs] = process.argv.slice(2) as [string, string, string];

const block = (): void => {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, Number(blockMs));
};
const slowly: CompileBackend = (module) => {
  block();
  return module.forward.bind(module);
};
const double = (): void => {
  const step = (x: Tensor): Tensor => x.mul(2);
  compile(step, { backend: slowly })(ones([2]));
};

/** The sum over the group, or the error. */
async function sum(group?: ReturnType<typeof newGroup>): Promise<unknown> {
  const t = ones([2]);
  allReduce(t, group === undefined ? {} : { group });
  return t.read().then(
    (values) => [...(values as Float32Array)],
    (error: CollectiveError) => error.message,
  );
}

const scenarios: Record<string, (rank: number) => Promise<unknown>> = {
  async compiles(rank) {
    await sum();
    if (rank === 1) double();
    return sum();
  },
  async sleeps(rank) {
    await sum();
    if (rank === 1) block();
    return sum();
  },
  async limited(rank) {
    compiler.config.compileTimeoutMs = 200;
    await sum();
    if (rank === 1) double();
    return sum();
  },
  /** Rank 0 waits for rank 1, which waits for rank 2, which compiles. */
  async chain(rank) {
    const [first, last] = [newGroup([0, 1]), newGroup([1, 2])];
    if (rank < 2) await sum(first);
    if (rank > 0) await sum(last);
    await sum();
    if (rank === 2) double();
    const seen = rank > 0 ? await sum(last) : null;
    return [seen, rank < 2 ? await sum(first) : null];
  },
  async dies(rank) {
    await sum();
    if (rank === 1) {
      const dies: CompileBackend = () => process.kill(process.pid, 'SIGKILL') as never;
      compile((x: Tensor) => x.mul(2), { backend: dies })(ones([2]));
    }
    const before = Date.now();
    return [await sum(), Date.now() - before];
  },
  /** Ranks with graphs of other collectives. */
  async differs(rank) {
    const summed = (x: Tensor): Tensor => functional.allReduce(x, 'sum').mul(2);
    const gathered = (x: Tensor): Tensor => functional.allGatherTensor(x, 0).mul(2);
    const run = compile(rank === 0 ? summed : gathered, { fullgraph: true });
    return Promise.resolve()
      .then(() => run(ones([4])).read())
      .catch((error: Error) => error.message);
  },
};

/** A process loads its modules longer than a short timeout allows. */
async function allStarted(): Promise<void> {
  writeFileSync(path.join(folder, `started-${process.env['RANK']}`), '');
  const started = () => readdirSync(folder).filter((name) => name.startsWith('started'));
  while (started().length < Number(process.env['WORLD_SIZE'])) await sleep(5);
}

await allStarted();
await initProcessGroup();
const seen = await scenarios[scenario]?.(getRank());
writeFileSync(path.join(folder, `rank-${getRank()}.json`), JSON.stringify(seen));
// What failed was reported.
process.exit(0);
