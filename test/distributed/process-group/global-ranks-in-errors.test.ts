/** Errors name ranks of the world, whatever their group ranks are. */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  allReduce,
  allToAllSingle,
  barrier,
  broadcast,
  type CollectiveDetails,
  type CollectiveError,
  DeviceMesh,
  newGroup,
  type ProcessGroup,
  recv,
  send,
} from '../../../lib/distributed.js';
import { ones, type Tensor, zeros } from '../../../lib/index.js';
import { describeOverEngines, errorOf, onRanks } from '../support/on-ranks.js';

const numerically = (a: number, b: number): number => a - b;

interface Seen {
  readonly message: string;
  readonly details: CollectiveDetails;
}

/** What ranks 3 and 1 of a world of four hear, which are places 0 and 1 of their group. */
async function seenBy(
  call: (rank: number, group: ProcessGroup) => Promise<Tensor>,
  timeoutMs = 5000,
): Promise<Record<1 | 3, Seen>> {
  const all = await onRanks(
    4,
    async (rank) => {
      const group = newGroup([3, 1]);
      if (group.rank < 0) return null;
      const error = (await errorOf(call(rank, group).then((t) => t.read()))) as CollectiveError;
      return { message: error.message, details: error.details };
    },
    { timeoutMs },
  );
  return { 1: all[1] as Seen, 3: all[3] as Seen };
}

const other = (rank: number): 1 | 3 => (rank === 1 ? 3 : 1);

describeOverEngines('an error of a group', () => {
  it('names global ranks if the roots of a collective differ', async () => {
    const seen = await seenBy(async (rank, group) => {
      const x = zeros([2]);
      broadcast(x, rank, { group });
      return x;
    });
    for (const rank of [1, 3] as const) {
      const { message, details } = seen[rank];
      assert.match(
        message,
        new RegExp(
          `: rank ${other(rank)} called broadcast of 2 float32 from rank ${other(rank)} at .*, this rank broadcast of 2 float32 from rank ${rank} at`,
        ),
      );
      assert.deepEqual(details.ranks, [other(rank)]);
      assert.deepEqual(details.calls?.map((each) => each.rank).sort(numerically), [1, 3]);
    }
  });

  it('names global ranks on all ranks that observe a mismatch later', async () => {
    await onRanks(4, async (rank) => {
      const mesh = new DeviceMesh('cpu', [3, 2, 1, 0]);
      const group = mesh.getGroup();
      if (rank === 0) await sleep(30);
      const x = zeros([rank === 2 ? 5 : 4]);
      allReduce(x, { group });
      const error = (await errorOf(x.read())) as CollectiveError;
      assert.match(
        error.message,
        rank === 2
          ? /: ranks 0, 1 and 3 called allReduce of 4 float32/
          : /: rank 2 called allReduce of 5 float32/,
      );
      const later = (await errorOf(barrier({ group }))) as CollectiveError;
      assert.deepEqual([error.details.ranks, later.details.ranks], [[2], [2]]);
    });
  });

  it('names global ranks and sizes of both ends of a message', async () => {
    const seen = await seenBy(async (rank, group) => {
      const x = zeros([2 + rank]);
      if (rank === 1) send(x, 3, { group });
      else recv(x, 1, { group });
      if (rank === 3) return x;
      await barrier({ group }).catch(() => {});
      allReduce(x, { group });
      return x;
    });
    for (const rank of [1, 3] as const) {
      assert.match(
        seen[rank].message,
        /rank 1 sent 3 float32 to rank 3 at .*, which receives 5 float32 at /,
      );
      assert.deepEqual([...(seen[rank].details.ranks ?? [])].sort(numerically), [1, 3]);
    }
  });

  it('names global ranks that send shards of unexpected sizes', async () => {
    const seen = await seenBy(async (rank, group) => {
      const out = zeros([rank === 3 ? 3 : 2]);
      allToAllSingle(out, ones([2]), {
        group,
        ...(rank === 3 ? { outputSplitSizes: [1, 2] } : {}),
      });
      return out;
    });
    for (const rank of [1, 3] as const)
      assert.match(seen[rank].message, /rank 1 sends 4 bytes to rank 3, which expects 8/);
  });

  it('names the global rank that a message waits for', async () => {
    const seen = await seenBy(async (rank, group) => {
      const x = zeros([2]);
      await barrier({ group });
      if (rank === 3) await sleep(500);
      if (rank === 1) recv(x, 3, { group });
      else allReduce(x, { group });
      return x;
    }, 200);
    for (const rank of [1, 3] as const)
      assert.match(
        seen[rank].message,
        /on rank 1: recv from rank 3 \(group "group0"\) at .*: rank 3 has not come/,
        'so that rank 3 is not told of itself',
      );
    assert.deepEqual(seen[1].details.ranks, [3]);
  });

  it('names global ranks that have not joined', async () => {
    const errors = await onRanks(
      4,
      async (rank) => {
        const group = newGroup([3, 1]);
        if (rank === 3) await sleep(500);
        if (rank !== 1) return null;
        const x = ones([2]);
        allReduce(x, { group });
        return (await errorOf(x.read())) as CollectiveError;
      },
      { timeoutMs: 200 },
    );
    const { message, details } = errors[1] as CollectiveError;
    assert.match(message, /: rank 3 has not joined/);
    assert.deepEqual([details.ranks, details.calls?.map(({ rank }) => rank)], [[3], [1, 3]]);
  });

  it('names global ranks that leave or give up', async () => {
    const seen: CollectiveError[] = [];
    for (const ends of [() => {}, () => assert.fail('boom')]) {
      const run = onRanks(4, async (rank) => {
        const group = newGroup([3, 1]);
        if (group.rank < 0) return;
        await barrier({ group });
        if (rank === 3) await sleep(50);
        if (rank === 3) return ends();
        const x = ones([2]);
        allReduce(x, { group });
        seen.push((await errorOf(x.read())) as CollectiveError);
      });
      await run.catch(() => {});
    }
    const [left, gaveUp] = seen as [CollectiveError, CollectiveError];
    assert.match(left.message, /: rank 3 has left the group/);
    assert.match(
      gaveUp.message,
      /: rank 3 (aborted the group: rank 3 failed: boom|has left the group)/,
    );
    assert.deepEqual([left.details.ranks, gaveUp.details.ranks], [[3], [3]]);
  });

  it('names a group along a mesh dimension by its name and its global ranks', async () => {
    const messages = await onRanks(4, async (rank) => {
      const mesh = new DeviceMesh(
        'cpu',
        [
          [3, 2],
          [1, 0],
        ],
        { meshDimNames: ['dp', 'tp'] },
      );
      const x = zeros([1 + rank]);
      allReduce(x, { group: mesh.getGroup('tp') });
      return (await errorOf(x.read())).message;
    });
    assert.match(messages[3] as string, /group "tp\[3,2\]"\): rank 2 called/);
    assert.match(messages[0] as string, /group "tp\[1,0\]"\): rank 1 called/);
    const unnamed = await onRanks(2, async (rank) => {
      const x = zeros([1 + rank]);
      allReduce(x, { group: new DeviceMesh('cpu', [1, 0]).getGroup() });
      return (await errorOf(x.read())).message;
    });
    assert.match(unnamed[0] as string, /group "dim0\[1,0\]"\): rank 1 called/);
  });
});
