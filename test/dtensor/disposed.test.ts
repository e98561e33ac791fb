/** A disposed distributed tensor, whose local shard other tensors still show. */
import assert from 'node:assert/strict';
import { distributeTensor, initDeviceMesh, Replicate, Shard } from '../../lib/distributed.js';
import { FreedError, ones, type Tensor } from '../../lib/index.js';
import { onRanks } from '../distributed/support/on-ranks.js';

const uses: Record<string, (d: Tensor) => unknown> = {
  'an op': (d) => d.add(1),
  'the second operand of an op': (d) =>
    distributeTensor(ones([4, 2]), d.deviceMesh, [Shard(0)]).add(d),
  'an in-place op': (d) => d.mul_(2),
  'a view': (d) => d.t(),
  toLocal: (d) => d.toLocal(),
  fullTensor: (d) => d.fullTensor(),
  redistribute: (d) => d.redistribute(d.deviceMesh, [Replicate()]),
};

describe('a disposed distributed tensor', () => {
  for (const [name, use] of Object.entries(uses)) {
    it(`is refused by ${name}, and tensors on its memory go on`, async () => {
      await onRanks(2, async () => {
        const mesh = initDeviceMesh('cpu', [2]);
        const d = distributeTensor(ones([4, 2]), mesh, [Shard(0)]);
        const local = d.toLocal();
        d.dispose();
        assert.throws(() => use(d), FreedError);
        assert.deepEqual(await local.read(), new Float32Array([1, 1, 1, 1]));
      });
    });
  }

  it('still serves the backward of what was computed from it', async () => {
    await onRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2]);
      const d = distributeTensor(ones([4, 2]).mul(3), mesh, [Shard(0)]);
      const x = distributeTensor(ones([4, 2]), mesh, [Shard(0)]).requiresGrad_();
      const loss = x.mul(d).sum();
      d.dispose();
      loss.backward();
      assert.deepEqual(await x.grad?.toLocal().read(), new Float32Array([3, 3, 3, 3]));
    });
  });
});
