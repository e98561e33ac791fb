/** What groups, works and meshes look like in a terminal, and as JSON. */
import assert from 'node:assert/strict';
import { inspect } from 'node:util';
import { allReduce, initDeviceMesh, newGroup } from '../../lib/distributed.js';
import { ones } from '../../lib/index.js';
import { onRanks } from './on-ranks.js';

describe('what is printed of ranks', () => {
  it('is a line: of a group, its name and ranks', async () => {
    const lines = await onRanks(3, () => {
      const mesh = initDeviceMesh('cpu', [3], { meshDimNames: ['tp'] });
      return [inspect(mesh.getGroup()), inspect(newGroup([2, 0])), inspect({ mesh })];
    });
    assert.deepEqual(lines[0], ['ProcessGroup(world: rank 0 of ranks 0, 1, 2)', 'ProcessGroup(group0: rank 1 of ranks 2, 0)', '{ mesh: DeviceMesh(cpu, tp: 3) }']);
    assert.equal(lines[1]?.[1], 'ProcessGroup(group0: not a member, of ranks 2, 0)');
  });

  it('is a line: of a work, how far it is', async () => {
    const lines = await onRanks(2, async () => {
      const work = allReduce(ones([2]), { asyncOp: true });
      const before = String(work);
      await work.wait();
      return [before, inspect(work)];
    });
    assert.deepEqual(lines[0], ['Work(under way)', 'Work(done)']);
  });

  it('is data of a mesh as JSON', async () => {
    const [text] = await onRanks(4, () => JSON.stringify(initDeviceMesh('cpu', [2, 2], { meshDimNames: ['dp', 'tp'] })));
    assert.deepEqual(JSON.parse(text as string), {
      deviceType: 'cpu',
      meshDimNames: ['dp', 'tp'],
      mesh: [
        [0, 1],
        [2, 3],
      ],
    });
  });
});
