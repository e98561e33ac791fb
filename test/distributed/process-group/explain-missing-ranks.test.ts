/**
 * Errors of ranks that wait in a group: they name its creation, and the progress of missing ranks.
 */
import assert from 'node:assert/strict';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  allReduce,
  barrier,
  type CollectiveError,
  initDeviceMesh,
  newGroup,
  type ProcessGroup,
} from '../../../lib/distributed.js';
import { ones } from '../../../lib/index.js';
import { describeOverEngines, errorOf, onRanks } from '../support/on-ranks.js';

/** Long enough for ranks to connect while other tests run. */
const WAIT_MS = 800;

const here = `explain-missing-ranks\\.test${path.extname(import.meta.url)}:\\d+`;

async function failureIn(group: ProcessGroup): Promise<CollectiveError> {
  const x = ones([2]);
  allReduce(x, { group });
  return (await errorOf(x.read())) as CollectiveError;
}

const siteOf = ({ details }: CollectiveError, rank: number): string =>
  details.calls?.find((call) => call.rank === rank)?.where ?? '';
const opOf = ({ details }: CollectiveError, rank: number): string | undefined =>
  details.calls?.find((call) => call.rank === rank)?.op;

describeOverEngines('the error of a group that waits for a missing rank', () => {
  it("names the rank's last group creation, with both numbers, if the rank has not created the group", async () => {
    await onRanks(
      3,
      async (rank) => {
        const first = newGroup([0, 2]);
        if (rank === 2) return void (await sleep(3 * WAIT_MS));
        assert.ok(first);
        const error = await failureIn(newGroup());
        assert.match(
          error.message,
          new RegExp(
            `allReduce.* at .*${here}.*rank 2 has not joined.*timeout after \\d+ ms.*\n.*\n  this rank created group "group1" of the ranks .* by newGroup \\(group creation 2 of group "world"\\) at .*${here}.*; rank 2 has not created it, its last creation was newGroup \\(group creation 1\\) at .*${here}`,
          ),
        );
        assert.deepEqual(
          [error.details.op, error.details.group, error.details.sequence, error.details.ranks],
          ['allReduce', 'group1', 1, [2]],
        );
        assert.equal(opOf(error, 2), 'newGroup');
        assert.match(siteOf(error, 2), new RegExp(here));
      },
      { timeoutMs: WAIT_MS },
    );
  });

  it('says so if the rank has created the group and called nothing', async () => {
    await onRanks(
      2,
      async (rank) => {
        await barrier();
        const group = newGroup();
        if (rank === 1) return void (await sleep(3 * WAIT_MS));
        const error = await failureIn(group);
        assert.match(
          error.message,
          new RegExp(
            `; rank 1 created it too, by newGroup \\(group creation 1\\) at .*${here}.*, and has called nothing since`,
          ),
        );
        assert.equal(opOf(error, 1), 'newGroup');
      },
      { timeoutMs: WAIT_MS },
    );
  });

  it("names the rank's last collective if the rank has not created the mesh", async () => {
    await onRanks(
      4,
      async (rank) => {
        if (rank === 3) await barrier({ group: newGroup([3]) });
        else newGroup([3]);
        if (rank === 3) return void (await sleep(3 * WAIT_MS));
        const mesh = initDeviceMesh('cpu', [2, 2], { meshDimNames: ['dp', 'tp'] });
        if (rank === 0) return;
        const error = await failureIn(mesh.getGroup(rank === 1 ? 'dp' : 'tp'));
        assert.match(
          error.message,
          new RegExp(
            `this rank created DeviceMesh\\(cpu, dp: 2, tp: 2\\) of the ranks .* by initDeviceMesh \\(group creation 2 of group "world"\\) at .*${here}.*; rank 3 has not created it, its last creation was newGroup \\(group creation 1\\) at .*${here}.*, its last call was barrier at .*${here}`,
          ),
        );
      },
      { timeoutMs: WAIT_MS },
    );
  });

  it("names the rank's last call if the rank has left", async () => {
    await onRanks(
      3,
      async (rank) => {
        await barrier();
        if (rank === 2) return;
        const error = await failureIn(newGroup());
        assert.match(
          error.message,
          new RegExp(
            `rank 2 has .*\n.*\n  this rank created group "group0" of the ranks .* by newGroup .* at .*${here}.*; rank 2 created no group, its last call was barrier at .*${here}`,
          ),
        );
        assert.deepEqual([opOf(error, 2), error.details.ranks], ['barrier', [2]]);
      },
      { timeoutMs: 300 },
    );
  });
});
