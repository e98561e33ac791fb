/** Scenarios of ranks that are processes. Each rank writes its results to a file. */
import assert from 'node:assert/strict';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  allGather,
  allReduce,
  allToAll,
  barrier,
  broadcast,
  type CollectiveError,
  destroyProcessGroup,
  gather,
  getRank,
  getWorldSize,
  initDeviceMesh,
  initProcessGroup,
  newGroup,
  type ProcessGroup,
  recv,
  reduce,
  reduceScatter,
  scatter,
  send,
} from '../../../lib/distributed.js';
import { full, ones, type Tensor, tensor, zeros } from '../../../lib/index.js';
import { failing, followLeader } from './leader.js';

const [scenario, folder] = process.argv.slice(2) as [string, string];

function report(seen: unknown): void {
  writeFileSync(path.join(folder, `rank-${getRank()}.json`), JSON.stringify(seen));
}

/** Until that rank has said what it saw. */
async function waitForReport(rank: number): Promise<void> {
  while (!existsSync(path.join(folder, `rank-${rank}.json`))) await sleep(20);
}

/** What a rank hears that calls each of the groups. */
async function heardOf(groups: readonly ProcessGroup[]): Promise<unknown[]> {
  const seen = [];
  for (const group of groups) {
    const t = ones([4]);
    allReduce(t, { group });
    const error = await t.read().catch((reason: unknown) => reason as CollectiveError);
    seen.push({ message: (error as Error).message, details: (error as CollectiveError).details });
  }
  return seen;
}

const values = (list: readonly Tensor[]): number[][] => list.map((t) => t.tolist() as number[]);

/** Every collective once, where ranks have different sizes and some have nothing. */
async function collectives(rank: number, size: number): Promise<void> {
  const last = size - 1;
  const total = (size * (size - 1)) / 2;
  const sum = full([2], rank);
  allReduce(sum);
  assert.deepEqual(sum.tolist(), [total, total]);
  const most = tensor([rank, 5 - rank]);
  reduce(most, last, { op: 'max' });
  if (rank === last) assert.deepEqual(most.tolist(), [last, 5]);
  const nothing = zeros([0]);
  allReduce(nothing);
  const told = full([3], rank);
  broadcast(told, last);
  assert.deepEqual(told.tolist(), [last, last, last]);
  const own = full([rank], rank); // nothing of rank 0
  const parts = (): Tensor[] => Array.from({ length: size }, (_, r) => zeros([r]));
  const expected = Array.from({ length: size }, (_, r) => Array.from({ length: r }, () => r));
  const all = parts();
  allGather(all, own);
  assert.deepEqual(values(all), expected);
  const gathered = Array.from({ length: size }, () => zeros([2]));
  gather(full([2], rank), { dst: 1, ...(rank === 1 ? { gatherList: gathered } : {}) });
  if (rank === 1) gathered.forEach((t, r) => assert.deepEqual(t.tolist(), [r, r]));
  const given = zeros([2]);
  scatter(given, {
    src: 1,
    ...(rank === 1
      ? { scatterList: Array.from({ length: size }, (_, r) => full([2], 10 * r)) }
      : {}),
  });
  assert.deepEqual(given.tolist(), [10 * rank, 10 * rank]);
  const scattered = zeros([rank]);
  reduceScatter(
    scattered,
    Array.from({ length: size }, (_, r) => full([r], 1)),
  );
  assert.deepEqual(
    scattered.tolist(),
    Array.from({ length: rank }, () => size),
  );
  const exchanged = Array.from({ length: size }, (_, r) => zeros([rank, r + 1]));
  allToAll(
    exchanged,
    Array.from({ length: size }, (_, r) => full([r, rank + 1], rank)),
  );
  exchanged.forEach((t, r) =>
    assert.deepEqual(
      t.flatten().tolist(),
      Array.from({ length: rank * (r + 1) }, () => r),
    ),
  );
  if (rank === 0) send(tensor([0, 1, 2, 3, 4]), last);
  if (rank === last) {
    const message = zeros([5]);
    recv(message, 0);
    assert.deepEqual(message.tolist(), [0, 1, 2, 3, 4]);
  }
  const large = full([1_000_003], rank + 1);
  allReduce(large);
  assert.equal(large.amin().item(), total + size);
  assert.equal(large.amax().item(), total + size);
  await barrier();
  const few = newGroup([0, last]);
  const pair = ones([1]);
  if (few.rank >= 0) {
    allReduce(pair, { group: few });
    assert.equal(pair.item(), 2);
  }
}

/** Calls that differ, each in a group of its own, because a group that has failed stays so. */
async function differences(rank: number): Promise<void> {
  const [shapes, kinds] = [newGroup([0, 1]), newGroup([0, 1])];
  if (rank > 1) return;
  const t = ones([rank + 2]);
  const differentShapes = await failing(() => {
    allReduce(t, { group: shapes });
    return t.read();
  });
  const u = ones([2]);
  const differentKinds = await failing(() => {
    if (rank === 0) allReduce(u, { group: kinds });
    else broadcast(u, 0, { group: kinds });
    return u.read();
  });
  report({ differentShapes, differentKinds });
}

const scenarios: Readonly<Record<string, (rank: number, size: number) => unknown>> = {
  async values(rank, size) {
    await collectives(rank, size);
    await differences(rank);
  },
  /** Rank 1 dies while the others wait for it in a collective. */
  async killed(rank) {
    const t = ones([4]);
    allReduce(t);
    await t.read();
    if (rank === 1) {
      await sleep(100);
      process.kill(process.pid, 'SIGKILL');
    }
    report(
      await failing(() => {
        allReduce(t);
        return t.tolist();
      }),
    );
    process.exitCode = 1;
  },
  /** The others wait for commands of rank 0; then it dies. */
  async leader(rank) {
    report(await followLeader(rank, Number(process.argv[4])));
    process.exitCode = 1;
  },
  /** The same among the ranks 2 and 1, which are places 0 and 1 of their group. */
  async killedInPart(rank) {
    const group = newGroup([2, 1]);
    if (rank === 0) return sleep(1_000); // the one that was killed is to be the first that ends
    const t = ones([4]);
    allReduce(t, { group });
    await t.read();
    if (rank === 1) {
      await sleep(100);
      process.kill(process.pid, 'SIGKILL');
    }
    allReduce(t, { group });
    const error = await t.read().catch((reason: unknown) => reason as CollectiveError);
    report({ message: (error as Error).message, details: (error as CollectiveError).details });
    process.exitCode = 1;
  },
  /** Rank 1 dies before it comes to the groups that rank 0 and rank 2 are already waiting in. */
  async gone(rank) {
    const groups = [newGroup([0, 1]), newGroup([1, 2])];
    if (rank === 1) await sleep(300);
    if (rank === 1) process.kill(process.pid, 'SIGKILL');
    if (rank === 3) return;
    const t = ones([4]);
    report(
      await failing(() => {
        allReduce(t, { group: groups[rank === 0 ? 0 : 1] as ProcessGroup });
        return t.read();
      }),
    );
    await sleep(500); // the one that was killed is to be the first that ends
    process.exitCode = 1;
  },
  /** Rank 1 comes to no call of the group that rank 0 waits in. */
  async absent(rank) {
    const groups = [newGroup([0, 1]), newGroup([1, 0])];
    if (rank === 1) return waitForReport(0);
    report(await heardOf(groups));
  },
  /** Rank 1, which comes later, makes the group of other ranks. */
  async differentGroups(rank) {
    if (rank === 1) await sleep(300);
    const heard = await failing(() => {
      const t = ones([4]);
      allReduce(t, { group: newGroup(rank === 1 ? [1, 2] : [0, 1]) });
      return t.read();
    });
    report(heard);
    await sleep(1_000);
  },
  /**
   * Rank 1 makes another mesh: it and rank 3 wait for each other, each in a group that the other
   * one has not.
   */
  async differentMeshes(rank) {
    const begin = Date.now();
    const names = rank === 1 ? ['a', 'b'] : ['dp', 'tp'];
    const mesh = initDeviceMesh('cpu', [2, 2], { meshDimNames: names });
    const t = ones([4]);
    allReduce(t, { group: mesh.getGroup(0) });
    // of ranks 0 and 2 it may be done before
    const error = await t.read().catch((reason: unknown) => reason as CollectiveError);
    if (rank % 2 === 0) return waitForReport(1).then(() => waitForReport(3));
    // nothing of this rank waits any more for its groups to come together
    const after = ones([1]).add(1).item();
    report({
      ms: Date.now() - begin,
      message: (error as Error).message,
      details: (error as CollectiveError).details,
      after,
    });
    await waitForReport(4 - rank);
    destroyProcessGroup();
  },
  /** Rank 1 makes two meshes differently. */
  async twoDifferentMeshes(rank) {
    const heard: string[] = [];
    for (const names of ['ab', 'cd'].map((text) => [...text])) {
      const told = failing(async () => {
        const mesh = initDeviceMesh('cpu', [2, 2], {
          meshDimNames: rank === 1 ? names.toReversed() : names,
        });
        for (;;) {
          const t = ones([1]);
          allReduce(t, { group: mesh.getGroup(0) });
          await t.read();
          await sleep(10);
        }
      });
      heard.push(await told);
    }
    report(heard);
    for (const other of [0, 1, 2, 3]) await waitForReport(other);
  },
  /** Nothing but a blocking read waits for rank 1, which makes no group. */
  async blocking(rank) {
    if (rank === 1) return waitForReport(0);
    const group = newGroup([0, 1]);
    const t = ones([1]);
    allReduce(t, { group });
    report(await failing(async () => t.item()));
  },
  /**
   * Rank 1 makes a group that rank 0 makes after another one, and calls nothing of it; rank 2 makes
   * none.
   */
  async notJoined(rank) {
    if (rank > 0) {
      if (rank === 1) newGroup([0, 1]);
      return waitForReport(0);
    }
    report(await heardOf([newGroup([0, 1]), newGroup([0, 2])]));
  },
  /** Nobody asks a Work that has failed. */
  async unheard(rank) {
    const work = allReduce(ones([1 + rank]), { asyncOp: true });
    while (!work.isCompleted()) await sleep(10);
    report(null);
  },
  /** What the world's memory takes, and that of a part, while they are mapped. */
  async memory() {
    const mapped = (): number =>
      readFileSync('/proc/self/maps', 'utf8')
        .split('\n')
        .filter((line) => line.includes('/dev/shm/shardwise-'))
        .map(
          (line) =>
            line
              .split(' ', 1)[0]
              ?.split('-')
              .map((at) => Number.parseInt(at, 16)) as [number, number],
        )
        .reduce((sum, [from, to]) => sum + (to - from) / 2 ** 20, 0);
    const world = mapped();
    const t = ones([1]);
    allReduce(t, { group: newGroup() });
    await t.read();
    report([world, mapped() - world]);
    await barrier();
  },
  /** Rank 1 throws while the others wait for it. */
  async throws(rank) {
    const t = ones([4]);
    if (rank === 1) await sleep(50);
    if (rank === 1) throw new TypeError('no data for this rank');
    allReduce(t);
    report(await failing(() => t.read()));
    process.exitCode = 3;
  },
  /** Rank 1 stops for longer than the others wait. */
  async stalls(rank) {
    const t = ones([4]);
    allReduce(t);
    await t.read();
    if (rank === 1) process.kill(process.pid, 'SIGSTOP');
    allReduce(t);
    const error = await failing(() => t.read());
    report(error);
    if (rank === 0) throw new Error(error);
  },
  async exits(rank) {
    console.log(
      `rank ${rank} of ${getWorldSize()}, node ${process.env['GROUP_RANK']}, ${process.argv.slice(3).join(' ')}`,
    );
    if (rank === 1) process.exit(7);
  },
  async sums(rank, size) {
    console.log(`process ${process.pid}`);
    const t = full([2], rank);
    allReduce(t);
    report({
      sum: t.tolist(),
      size,
      node: process.env['GROUP_RANK'],
      local: process.env['LOCAL_RANK'],
      restarts: process.env['TORCHELASTIC_RESTART_COUNT'],
    });
    if (
      rank === 1 &&
      process.argv[4] === 'once' &&
      process.env['TORCHELASTIC_RESTART_COUNT'] === '0'
    )
      process.exit(5);
  },
  async loops(rank) {
    report(process.pid);
    if (rank === 0) for (;;) Math.random();
    await sleep(60_000);
  },
  async waits(rank) {
    report(process.pid);
    if (rank === 0) await sleep(60_000);
    const t = ones([1]);
    allReduce(t);
    await t.read(); // rank 1 waits for rank 0, which sleeps
  },
};

if (scenario === 'ends-before') {
  // Rank 1 ends without an error before it comes to the first or the second world; rank 2 comes
  // only after that.
  const [rank, worlds] = [Number(process.env['RANK']), Number(process.argv[4])];
  for (let world = 0; world < worlds; world++) {
    await initProcessGroup();
    destroyProcessGroup();
  }
  if (rank === 1) process.exit(0);
  if (rank === 2) await sleep(700);
  const error = await failing(() => initProcessGroup());
  writeFileSync(path.join(folder, `rank-${rank}.json`), JSON.stringify(error));
  // whoever fails first ends the others, one that has only just started too
  await waitForReport(2 - rank);
  process.exit(error === 'no error' ? 0 : 1);
}
await initProcessGroup();
await scenarios[scenario]?.(getRank(), getWorldSize());
