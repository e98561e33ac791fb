/** Backends that a program names for some devices only: tensors of other devices are refused. */
import assert from 'node:assert/strict';
import {
  allReduce,
  barrier,
  DistributedError,
  destroyProcessGroup,
  initProcessGroup,
  isInitialized,
  launch,
  newGroup,
} from '../../../lib/distributed.js';
import { cuda, ones } from '../../../lib/index.js';
import { skipBecause } from '../../skip.js';

describe("ranks with the backend 'nccl' alone", () => {
  const refused =
    /allReduce: group "world" has no engine for CPU tensors: a backend was named for cuda only\. Name one for the CPU as well, such as 'cpu:shm,cuda:nccl', or move the tensor to the GPU/;

  it('refuse CPU tensors in the world and in groups', async () => {
    await launch(
      2,
      () => {
        assert.throws(
          () => allReduce(ones([2])),
          (error: Error) => error instanceof DistributedError && refused.test(error.message),
        );
        assert.throws(
          () => allReduce(ones([2]), { group: newGroup() }),
          /group "group0" has no engine for CPU tensors/,
        );
      },
      { backend: 'nccl' },
    );
  });

  it('run barriers on their GPUs, and get an error without a GPU', async () => {
    const message = await launch(1, () => barrier().then(() => '', String), {
      backend: 'nccl',
    }).then(([text]) => text as string);
    assert.ok(!/CPU tensors/.test(message), message);
  });

  it('get the error of a missing GPU from initProcessGroup, unless another backend is named', async function () {
    if (cuda.isAvailable()) return skipBecause(this, 'this machine has GPUs');
    const missing =
      /^initProcessGroup: the backend 'nccl' needs GPUs, and this machine has no usable one\. .*'shm' or 'gloo'.*\ndevice "cuda:0" is not available: /;
    for (const backend of ['nccl', 'cuda:nccl']) {
      await assert.rejects(
        initProcessGroup(backend),
        (error: Error) => error instanceof DistributedError && missing.test(error.message),
      );
      assert.equal(isInitialized(), false);
    }
    await initProcessGroup('cpu:shm,cuda:nccl');
    destroyProcessGroup();
  });

  it('accept CPU tensors if a CPU backend is named too, or none is named', async () => {
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
