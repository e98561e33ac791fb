/** Tensors of another rank or of the main program: errors name the owner and say what to do. */
import assert from 'node:assert/strict';
import { allReduce, barrier } from '../../../lib/distributed.js';
import {
  addmm,
  cat,
  crossEntropy,
  DeviceError,
  embedding,
  int64,
  layerNorm,
  ones,
  type ShardwiseError,
  type Tensor,
  zeros,
} from '../../../lib/index.js';
import { onRanks } from '../support/on-ranks.js';

function refused(call: () => unknown, expected: string): void {
  assert.throws(call, (error: Error) => {
    assert.ok(error instanceof DeviceError, error.stack);
    assert.ok(error.message.includes(expected), error.message);
    return true;
  });
}

describe('a tensor of another rank of the process', () => {
  it("does not mix with this rank's tensors, and the error says to send it", async () => {
    let theirs: Tensor | undefined;
    await onRanks(2, async (rank) => {
      if (rank === 0) theirs = ones([2, 2]);
      await barrier();
      if (rank === 1) {
        const [own, other] = [ones([2, 2]), theirs as Tensor];
        const advice =
          'Ranks that share a process have memory of their own: send what rank 0 has made by a collective, or by send and recv.';
        refused(
          () => own.add(other),
          `add: expected tensors on one device, got float32[2, 2] on cpu and float32[2, 2] on cpu of rank 0. ${advice}`,
        );
        refused(() => own.matmul(other), `matmul: expected tensors on one device. ${advice}`);
        refused(
          () => cat([own, other]),
          `cat: tensor 1 is on cpu of rank 0, tensor 0 on cpu. ${advice}`,
        );
        refused(
          () => other.to('cpu'),
          'copy: rank 1 reads a tensor on cpu of rank 0. Ranks that share a process have memory of their own: values go from one to another by',
        );
        refused(
          () => other.copy_(own),
          'copy_: rank 1 writes into a tensor on cpu of rank 0. Ranks',
        );
        refused(
          () => allReduce(other),
          'allReduce: expected the tensor to be on a device of rank 1, got cpu of rank 0.',
        );
      }
      await barrier();
    });
  });

  it('is copied once that rank has ended', async () => {
    const [given] = (await onRanks(1, () => ones([2]))) as [Tensor];
    refused(
      () => ones([2]).add(given),
      "on cpu and float32[2] on cpu of rank 0. rank 0 has ended: take a copy of it with .to('cpu').",
    );
    assert.deepEqual(ones([2]).add(given.to('cpu')).tolist(), [2, 2]);
  });
});

describe('a tensor of the main program', () => {
  it('is refused by every op that takes it beside tensors of a rank', async () => {
    const [values, index] = [ones([4, 4]), zeros([4, 4], { dtype: int64 })];
    const row = index.select(0, 0);
    await onRanks(1, () => {
      const own = ones([4, 4]);
      const calls: Record<string, () => Tensor> = {
        gather: () => own.gather(0, index),
        scatter: () => own.scatter(0, index, own),
        index_select: () => own.indexSelect(0, row),
        embedding: () => embedding(row, own),
        cross_entropy: () => crossEntropy(own, row),
        layer_norm: () => layerNorm(own, [4], values.select(0, 0)),
        addmm: () => addmm(values, own, own),
      };
      for (const call of Object.values(calls))
        refused(
          call,
          "on cpu of the main program. What is on cpu of the main program was made outside of the ranks: take a copy of it with .to('cpu').",
        );
    });
  });

  it('gets no gradient from a rank', async () => {
    const given = ones([2], { requiresGrad: true });
    const told =
      "backward of a leaf, in grad: expected float32[2] on cpu of the main program, got float32[2] on cpu. What is on cpu of the main program was made outside of the ranks: take a copy of it with .to('cpu').";
    await onRanks(2, () => assert.throws(() => given.mul(2).sum().backward(), { message: told }));
  });

  it('is named with the call of a loss whose gradient is refused', async () => {
    const x = ones([4, 3], { requiresGrad: true });
    const target = zeros([4], { dtype: int64 });
    await onRanks(2, () =>
      assert.throws(
        () => crossEntropy(x, target).backward(),
        (error: ShardwiseError) =>
          error.details['op'] === 'crossEntropy' &&
          error.message.startsWith(
            'backward of crossEntropy(float32[4, 3] on cpu of the main program), in scaleRows: ' +
              'expected tensors on one device',
          ),
      ),
    );
  });

  it('is unchanged for the main program after ranks have read it', async () => {
    const index = zeros([6, 1], { dtype: int64 });
    // work that is under way when the next op is called
    for (let i = 0; i < 50; i++) ones([1 << 16]).sum();
    index.add_(1);
    await index.read();
    const [copied] = await onRanks(
      1,
      async () => (await ones([6, 10]).gather(1, index.to('cpu')).read()).length,
    );
    assert.equal(copied, 6);
    assert.deepEqual([...(await index.add(1).read())], [2n, 2n, 2n, 2n, 2n, 2n]);
  });

  it('is copied by a rank, which cannot write into it', async () => {
    const given = ones([2]);
    await onRanks(2, () => {
      const own = ones([2]);
      refused(
        () => own.add(given),
        "on cpu of the main program. What is on cpu of the main program was made outside of the ranks: take a copy of it with .to('cpu').",
      );
      assert.deepEqual(own.add(given.to('cpu')).tolist(), [2, 2]);
      refused(
        () => given.copy_(own),
        'writes into a tensor on cpu of the main program. Until the ranks have ended, values leave them only by what their functions return',
      );
    });
  });
});
