/** Backends that a program names for some devices only: tensors of others are refused, and do not go another way silently. */
import assert from 'node:assert/strict';
import { allReduce, barrier, DistributedError, launch, newGroup } from '../../lib/distributed.js';
import { ones } from '../../lib/index.js';

describe("ranks of launch with the backend 'nccl' alone", () => {
  const refused =
    /allReduce: group "world" has no engine for CPU tensors: a backend was named for cuda only\. Name one for the CPU as well, such as 'cpu:shm,cuda:nccl', or move the tensor to the GPU/;

  it('refuse CPU tensors, in the world and in groups', async () => {
    await launch(
      2,
      () => {
        assert.throws(
          () => allReduce(ones([2])),
          (error: Error) => error instanceof DistributedError && refused.test(error.message),
        );
        assert.throws(() => allReduce(ones([2]), { group: newGroup() }), /group "group0" has no engine for CPU tensors/);
      },
      { backend: 'nccl' },
    );
  });

  it('meet on their GPUs in a barrier: where there is none, that is what is said', async () => {
    const message = await launch(1, () => barrier().then(() => '', String), { backend: 'nccl' }).then(([text]) => text as string);
    assert.ok(!/CPU tensors/.test(message), message);
  });

  it('use the CPU where it is named too, or no backend is', async () => {
    for (const backend of ['cpu:shm,cuda:nccl', 'shm', null]) {
      const values = await launch(
        2,
        async () => {
          const t = ones([1]);
          allReduce(t);
          await barrier();
          return t.itemAsync();
        },
        { backend },
      );
      assert.deepEqual(values, [2, 2]);
    }
  });
});
