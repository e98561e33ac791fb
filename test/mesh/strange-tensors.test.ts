/** Tensors of another rank, or of the program around the ranks: errors say whose they are and what can be done. */
import assert from 'node:assert/strict';
import { allReduce, barrier } from '../../lib/distributed.js';
import { cat, DeviceError, ones, type Tensor } from '../../lib/index.js';
import { onRanks } from './on-ranks.js';

function refused(call: () => unknown, expected: string): void {
  assert.throws(call, (error: Error) => {
    assert.ok(error instanceof DeviceError, error.stack);
    assert.ok(error.message.includes(expected), error.message);
    return true;
  });
}

describe('a tensor of another rank of the process', () => {
  it('does not mix with own ones: its values are to be sent', async () => {
    let theirs: Tensor | undefined;
    await onRanks(2, async (rank) => {
      if (rank === 0) theirs = ones([2, 2]);
      await barrier();
      if (rank === 1) {
        const [own, other] = [ones([2, 2]), theirs as Tensor];
        const advice = 'Ranks that share a process have memory of their own: send what rank 0 has made by a collective, or by send and recv.';
        refused(() => own.add(other), `add: expected tensors on one device, got float32[2, 2] on cpu and float32[2, 2] on cpu of rank 0. ${advice}`);
        refused(() => own.matmul(other), `matmul: expected tensors on one device. ${advice}`);
        refused(() => cat([own, other]), `cat: tensor 1 is on cpu of rank 0, tensor 0 on cpu. ${advice}`);
        refused(() => other.to('cpu'), 'copy: rank 1 reads a tensor on cpu of rank 0. Ranks that share a process have memory of their own: values go from one to another by');
        refused(() => other.copy_(own), 'copy: rank 1 writes into a tensor on cpu of rank 0. Ranks');
        refused(() => allReduce(other), 'allReduce: expected the tensor to be on a device of rank 1, got cpu of rank 0.');
      }
      await barrier();
    });
  });

  it('is copied once that rank has ended', async () => {
    const [given] = (await onRanks(1, () => ones([2]))) as [Tensor];
    refused(() => ones([2]).add(given), "on cpu and float32[2] on cpu of rank 0. rank 0 has ended: take a copy of it with .to('cpu').");
    assert.deepEqual(ones([2]).add(given.to('cpu')).tolist(), [2, 2]);
  });
});

describe('a tensor of the program around the ranks', () => {
  it('is copied in, and nothing is written into it', async () => {
    const given = ones([2]);
    await onRanks(2, () => {
      const own = ones([2]);
      refused(() => own.add(given), "on cpu of the main program. It was made outside of the ranks: take a copy of it with .to('cpu').");
      assert.deepEqual(own.add(given.to('cpu')).tolist(), [2, 2]);
      refused(() => given.copy_(own), 'writes into a tensor on cpu of the main program. Until the ranks have ended, values leave them only by what their functions return');
    });
  });
});
