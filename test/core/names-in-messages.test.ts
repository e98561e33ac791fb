/** The names of unexpected values in messages. */
import assert from 'node:assert/strict';
import { shown } from '../../lib/core/options.js';
import {
  DTensor,
  initDeviceMesh,
  launch,
  Partial,
  Replicate,
  RowwiseParallel,
  Shard,
} from '../../lib/distributed.js';
import { nn, ones } from '../../lib/index.js';
import { describe as described } from '../../lib/ops/operand.js';

describe('values in messages', () => {
  it('have their public names with the right article', async () => {
    await launch(1, () => {
      const mesh = initDeviceMesh('cpu', [1]);
      const spec = DTensor.fromLocal(ones([2]), mesh)._spec;
      const values = [
        mesh,
        mesh.getGroup(),
        spec,
        Shard(0),
        Replicate(),
        Partial(),
        RowwiseParallel(),
        new nn.Embedding(1, 1),
        ones([1]),
        new Error('x'),
        new Map(),
        new Uint8Array(),
      ];
      const expected =
        'a DeviceMesh, a ProcessGroup, a DTensorSpec, a Shard, a Replicate, a Partial, a RowwiseParallel, an Embedding, a Tensor, an Error, a Map, a Uint8Array';
      assert.equal(values.map(shown).join(', '), expected);
      assert.equal(values.map(described).join(', '), expected);
    });
    assert.equal(Shard(0).constructor, Shard);
  });

  it('are called objects or functions if they have no name, and are never shown as source', () => {
    for (const value of [{}, Object.create(null), new (class {})()])
      assert.equal(shown(value), 'an object');
    assert.deepEqual(
      [shown([{}, 1]), shown(DTensor), described(DTensor), shown(() => 1), shown(async () => 1)],
      ['[an object, 1]', 'the class DTensor', 'the class DTensor', 'a function', 'a function'],
    );
    assert.throws(
      () => ones([2]).add(DTensor as never),
      /add: expected a tensor or a number, got the class DTensor$/,
    );
  });
});
