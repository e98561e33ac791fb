/**
 * Indices out of range of the whole tensor are an error, as on one device, and not rows of zeros.
 */
import assert from 'node:assert/strict';
import {
  distributeTensor,
  initDeviceMesh,
  lossParallel,
  Replicate,
  Shard,
} from '../../../lib/distributed.js';
import { crossEntropy, embedding, ones, type Tensor, tensor, zeros } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';

describe('indices out of range of a tensor that is sharded along the indexed dim', () => {
  const calls: Record<string, (cut: Tensor, index: Tensor) => Tensor> = {
    embedding: (cut, index) => embedding(index, cut),
    gather: (cut, index) => cut.gather(0, index.reshape(-1, 1)),
    index: (cut, index) => cut.index([index]),
    indexAdd: (cut, index) =>
      cut.indexAdd(0, index, distributeTensor(ones([2, 3]), cut.deviceMesh, [Replicate()])),
  };
  for (const [name, call] of Object.entries(calls)) {
    it(
      `are refused by ${name} on every rank`,
      withRanks(2, async () => {
        const mesh = initDeviceMesh('cpu', [2]);
        const cut = distributeTensor(zeros([6, 3]), mesh, [Shard(0)]);
        await assert.rejects(
          async () =>
            call(cut, distributeTensor(tensor([1n, 6n]), mesh))
              .fullTensor()
              .read(),
          { code: 'ERR_INDEX', message: /index 6 at position 1 is out of range for .*size 6/ },
        );
      }),
    );
  }

  it(
    'are reported as the program passed them, also by ranks with empty shards',
    withRanks(4, async () => {
      const mesh = initDeviceMesh('cpu', [4]);
      const cut = distributeTensor(zeros([3, 2]), mesh, [Shard(0)]);
      const at = (index: bigint): Tensor => distributeTensor(tensor([[0n, index]]), mesh);
      const refused = (call: () => Tensor, expected: RegExp): Promise<void> =>
        assert.rejects(async () => call().toLocal().sum().read(), expected);
      await refused(
        () => embedding(at(-1n), cut),
        /index -1 at position 1 is out of range for size 3/,
      );
      await refused(
        () => cut.index([at(-4n)]),
        /index -4 at position 1 is out of range for dim 0 of size 3/,
      );
      await refused(
        () => cut.indexPut([at(3n)], distributeTensor(ones([1, 2, 2]), mesh)),
        /index 3 at position 1 is out of range for dim 0 of size 3/,
      );
      await refused(
        () => cut.scatter(0, at(9n), at(0n).to(cut.dtype)),
        /index 9 at position 1 is out of range for size 3/,
      );
    }),
  );

  it(
    'are refused by lossParallel as targets',
    withRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2]);
      const logits = distributeTensor(zeros([2, 6]), mesh, [Shard(1)]);
      await assert.rejects(
        async () => lossParallel(() => crossEntropy(logits, tensor([1n, 6n]))).itemAsync(),
        /target 6 at position 1 is not a class: there are 6/,
      );
    }),
  );
});
