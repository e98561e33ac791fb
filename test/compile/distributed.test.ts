/** Functions that create distributed tensors or call collectives run uncompiled. */
import assert from 'node:assert/strict';
import {
  allReduce,
  barrier,
  broadcast,
  ColwiseParallel,
  type DeviceMesh,
  DTensor,
  distributeTensor,
  initDeviceMesh,
  type ProcessGroup,
  parallelizeModule,
  RowwiseParallel,
  Shard,
} from '../../lib/distributed.js';
import { compile, nn, ones, type Tensor } from '../../lib/index.js';
import { CompileCounter } from '../../lib/testing/index.js';
import { onRanks, valuesOf } from '../distributed/support/on-ranks.js';

describe('a compiled function on several ranks', () => {
  it('is captured if a module is parallel', async () => {
    await onRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2]);
      const model = new nn.Sequential(new nn.Linear(4, 8), new nn.ReLU(), new nn.Linear(8, 4));
      parallelizeModule(model, mesh, { '0': ColwiseParallel(), '2': RowwiseParallel() });
      const x = ones([2, 4]);
      const wanted = await valuesOf(model(x));
      model(x).sum().backward();
      const gradients = await Promise.all(
        [...model.parameters()].map((p) => valuesOf(p.grad as Tensor)),
      );
      const counter = CompileCounter();
      const compiled = compile((input: Tensor) => model(input), {
        fullgraph: true,
        backend: counter,
      });
      for (let turn = 0; turn < 2; turn++) {
        model.zeroGrad();
        const result = compiled(x);
        assert.deepEqual(await valuesOf(result), wanted);
        result.sum().backward();
        assert.deepEqual(
          await Promise.all([...model.parameters()].map((p) => valuesOf(p.grad as Tensor))),
          gradients,
        );
      }
      assert.equal(counter.frameCount, 1);
    });
  });

  it('takes meshes and groups, which make and count things as they are used', async () => {
    await onRanks(2, async () => {
      const [mesh, counter] = [initDeviceMesh('cpu', [2]), CompileCounter()];
      const compiled = compile((m: DeviceMesh, x: Tensor) => [m.getGroup(), x.add(1)] as const, {
        fullgraph: true,
        backend: counter,
      });
      for (let call = 0; call < 2; call++) {
        const [group, sum] = compiled(mesh, ones([1]));
        assert.equal(group, mesh.getGroup());
        allReduce(ones([1]), { group });
        assert.deepEqual(await valuesOf(sum), [2]);
      }
      const summed = compile((g: ProcessGroup, x: Tensor) => x.mul(g.size), {
        fullgraph: true,
        backend: counter,
      });
      for (let call = 0; call < 2; call++) {
        assert.deepEqual(await valuesOf(summed(mesh.getGroup(), ones([1]))), [2]);
        await barrier({ group: mesh.getGroup() });
      }
      assert.equal(counter.frameCount, 2);
    });
  });

  it('runs uncompiled if it calls collectives, each of them once', async () => {
    const seen = await onRanks(2, async (rank) => {
      const mesh = initDeviceMesh('cpu', [2]);
      const summed = compile((x: Tensor) => {
        const y = x.mul(2);
        allReduce(y);
        broadcast(y, 1);
        return y;
      });
      const cut = compile((x: Tensor) =>
        DTensor.fromLocal(x, mesh, [Shard(0)])
          .sum()
          .add(distributeTensor(x, mesh, [Shard(0)]).sum())
          .fullTensor(),
      );
      const results: number[][] = [];
      for (let turn = 1; turn < 3; turn++)
        results.push(
          await valuesOf(summed(ones([2]).mul(rank + turn))),
          await valuesOf(cut(ones([2]).mul(turn))),
        );
      return results;
    });
    assert.deepEqual(seen, [
      [[6, 6], [6], [10, 10], [12]],
      [[6, 6], [6], [10, 10], [12]],
    ]);
  });
});
