import assert from 'node:assert/strict';
import {
  allReduce,
  ColwiseParallel,
  type DTensor,
  functional,
  initDeviceMesh,
  newGroup,
  parallelizeModule,
  RowwiseParallel,
} from '../../../lib/distributed.js';
import { arange, compile, graphBreak, nn, ones, type Tensor, zeros } from '../../../lib/index.js';
import { onRanks, valuesOf } from '../../distributed/support/on-ranks.js';

const localOf = (t: Tensor): Tensor => (t as DTensor).toLocal();

describe('lazy segments of several ranks', () => {
  it('run before a collective that reads or writes what they compute', async () => {
    const results = await onRanks(2, async (rank) => {
      const fn = compile(async (x: Tensor, total: Tensor) => {
        const y = x.mul(rank + 1).add(1);
        total.add_(y);
        await allReduce(total);
        total.mul_(2);
        return valuesOf(total.add(y));
      });
      const seen: unknown[] = [];
      for (let i = 0; i < 3; i++) seen.push(await fn(ones([2]), zeros([2])));
      return seen;
    });
    assert.deepEqual(results, [Array(3).fill([12, 12]), Array(3).fill([13, 13])]);
  });

  it('run before a group is created, whose ranks stand where their commands do', async () => {
    const fn = compile(async () => {
      await onRanks(4, async (rank) => {
        const group = newGroup([3, 0, 1]);
        if (rank === 2) return;
        const rows = arange(4)
          .view([2, 2])
          .narrow(0, group.rank % 2, 1);
        const whole = functional.allGatherTensor(rows, 0, group);
        assert.deepEqual(await valuesOf(whole), [0, 1, 2, 3, 0, 1]);
      });
    });
    for (let call = 0; call < 2; call++) await fn();
  });

  it('take ops on the shards of distributed tensors', async () => {
    await onRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2]);
      const model = new nn.Sequential(new nn.Linear(4, 8), new nn.ReLU(), new nn.Linear(8, 4));
      parallelizeModule(model, mesh, { '0': ColwiseParallel(), '2': RowwiseParallel() });
      const { weight } = [...model][0] as nn.Linear;
      const step = (x: Tensor): Tensor => {
        graphBreak();
        const scale = localOf(weight.mul(2).tanh()).mean();
        return model(x.mul(2)).sin().add(scale);
      };
      const gradients = async (run: typeof step): Promise<unknown> => {
        model.zeroGrad();
        const y = run(ones([2, 4]));
        y.sum().backward();
        const grads = [...model.parameters()].map((p) => valuesOf(p.grad as Tensor));
        return [await valuesOf(y), await Promise.all(grads)];
      };
      const expected = await gradients(step);
      for (const backend of ['eager', 'aot_eager', 'aot_eager_decomp_partition'] as const) {
        const compiled = compile(step, { backend });
        for (let turn = 0; turn < 3; turn++) assert.deepEqual(await gradients(compiled), expected);
      }
    });
  });
});
