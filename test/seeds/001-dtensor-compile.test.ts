/** Compiled functions on distributed tensors as PyTorch's test_dtensor_compile.py requires them. */
import assert from 'node:assert/strict';
import {
  ColwiseParallel,
  type DeviceMesh,
  DTensor,
  initDeviceMesh,
  type ParallelizePlan,
  type Placement,
  PrepareModuleInput,
  PrepareModuleOutput,
  parallelizeModule,
  Replicate,
  RowwiseParallel,
  Shard,
} from '../../lib/distributed.js';
import { compile, compiler, manualSeed, nn, ones, rand, type Tensor } from '../../lib/index.js';
import { CompileCounter } from '../../lib/testing/index.js';
import { onRanks, valuesOf } from '../distributed/support/on-ranks.js';

const FULL = { fullgraph: true } as const;

class MLP extends nn.Module {
  net1 = new nn.Linear(10, 16);
  relu = new nn.ReLU();
  net2 = new nn.Linear(16, 10);
  forward(x: Tensor): Tensor {
    return this.net2(this.relu(this.net1(x)));
  }
}

class TwoMLPs extends nn.Module {
  mlp_0 = new MLP();
  mlp_1 = new MLP();
  forward(x: Tensor): Tensor {
    return this.mlp_1(this.mlp_0(x));
  }
}

const onMesh = (world: number, fn: (mesh: DeviceMesh, rank: number) => Promise<void>) =>
  onRanks(world, (rank) => fn(initDeviceMesh('cpu', [world]), rank));

describe('a compiled function on distributed tensors', () => {
  it('seed 001.5: reads placements and the local shard of an intermediate', async () => {
    await onMesh(2, async (mesh) => {
      const counter = CompileCounter();
      const fn = (x: DTensor): Tensor => {
        const doubled = x.mul(2) as DTensor;
        return doubled.placements[0]?.isShard()
          ? doubled._localTensor.add(2)
          : doubled._localTensor.add(3);
      };
      const compiled = compile(fn, { ...FULL, backend: counter });
      for (const [placement, value] of [
        [Shard(0), 4],
        [Replicate(), 5],
        [Shard(0), 4],
      ] as [Placement, number][]) {
        const x = DTensor.fromLocal(ones([4]), mesh, [placement]);
        assert.deepEqual(compiled(x).tolist(), [value, value, value, value]);
      }
      assert.equal(counter.frameCount, 2);
    });
  });

  it('seed 001.7: calls a function that is excluded, once in each call', async () => {
    await onMesh(2, async (mesh) => {
      let calls = 0;
      const wrap = compiler.disable(
        (x: Tensor) => {
          calls++;
          return DTensor.fromLocal(x, mesh, [Replicate()]);
        },
        { recursive: false },
      );
      const compiled = compile(wrap, { backend: 'eager' });
      const x = rand([32], { requiresGrad: true });
      for (let call = 1; call <= 2; call++) {
        const out = compiled(x);
        assert.deepEqual(await valuesOf(out), await valuesOf(x));
        assert.equal(out.requiresGrad, true);
        assert.equal(calls, call);
      }
    });
  });

  it('seed 001.13: runs a forward hook that leaves and enters distributed tensors', async () => {
    await onMesh(2, async (mesh) => {
      let runs = 0;
      const model = new nn.Linear(4, 4);
      model.registerForwardHook((_m, _args, out) => {
        runs++;
        const { placements } = out as DTensor;
        const local = (out as DTensor).toLocal({ gradPlacements: placements }).add(2);
        return DTensor.fromLocal(local, mesh, placements);
      });
      for (const name of ['weight', 'bias'] as const)
        (model as unknown as Record<string, unknown>)[name] = new nn.Parameter(
          DTensor.fromLocal((model[name] as Tensor).detach(), mesh, [Replicate()]),
        );
      const x = DTensor.fromLocal(ones([4, 4]), mesh, [Replicate()]);
      const step = async (run: (x: Tensor) => Tensor): Promise<unknown[]> => {
        model.zeroGrad();
        const out = run(x);
        out.sum().backward();
        return Promise.all(
          [out, model.weight.grad, model.bias?.grad].map((t) => valuesOf(t as Tensor)),
        );
      };
      const expected = await step(model);
      const compiled = compile(model, FULL);
      assert.deepEqual(await step(compiled), expected);
      const captured = runs;
      assert.deepEqual(await step(compiled), expected);
      assert.equal(runs, captured);
    });
  });

  it('seed 001.15: redistributes a distributed tensor that it creates', async () => {
    await onMesh(2, async (mesh) => {
      const counter = CompileCounter();
      const fn = (x: Tensor): Tensor =>
        DTensor.fromLocal(x, mesh, [Shard(0)])
          .redistribute(mesh, [Replicate()])
          .toLocal()
          .add(2);
      const compiled = compile(fn, { ...FULL, backend: counter });
      for (let call = 0; call < 2; call++)
        assert.deepEqual(await valuesOf(compiled(ones([1]))), [3, 3]);
      assert.equal(counter.frameCount, 1);
    });
  });

  it('seed 001.16: reads the device of the mesh of an argument', async () => {
    await onMesh(2, async (mesh) => {
      const counter = CompileCounter();
      const fn = (x: DTensor): Tensor => (x.deviceMesh.deviceType === 'cuda' ? x.add(1) : x.add(2));
      const compiled = compile(fn, { ...FULL, backend: counter });
      const x = DTensor.fromLocal(ones([4, 4]), mesh, [Shard(0)]);
      for (let call = 0; call < 2; call++)
        assert.deepEqual(await valuesOf(compiled(x)), await valuesOf(fn(x)));
      assert.equal(counter.opCount, 1);
    });
  });

  const plans: Record<string, () => ParallelizePlan> = {
    '20': () => ({
      mlp_0: PrepareModuleInput({
        inputLayouts: [Shard(0)],
        desiredInputLayouts: [Replicate()],
      }),
      'mlp_0.net1': ColwiseParallel(),
      'mlp_0.net2': RowwiseParallel({ outputLayouts: Shard(0) }),
      'mlp_1.net1': ColwiseParallel({ inputLayouts: Shard(0) }),
      'mlp_1.net2': RowwiseParallel(),
      mlp_1: PrepareModuleOutput({
        outputLayouts: [Replicate()],
        desiredOutputLayouts: [Shard(0)],
      }),
    }),
    '21': () => ({
      'mlp_0.net1': ColwiseParallel(),
      'mlp_0.net2': RowwiseParallel(),
      'mlp_1.net1': ColwiseParallel(),
      'mlp_1.net2': RowwiseParallel(),
    }),
  };
  for (const [number, plan] of Object.entries(plans))
    it(`seed 001.${number}: is a tensor-parallel model in one frame, as eagerly`, async () => {
      await onMesh(4, async (mesh, rank) => {
        manualSeed(1);
        const model = new TwoMLPs();
        parallelizeModule(model, mesh, plan());
        manualSeed(number === '20' ? rank : 0);
        const x = rand([20, 10]);
        const step = async (run: (x: Tensor) => Tensor): Promise<unknown[]> => {
          model.zeroGrad();
          const out = run(x);
          out.sum().backward();
          const grads = [...model.parameters()].map((p) => p.grad as Tensor);
          return Promise.all([out, ...grads].map((t) => valuesOf(t)));
        };
        const expected = await step(model);
        const counter = CompileCounter();
        const compiled = compile(model, { ...FULL, backend: counter });
        for (let call = 0; call < 2; call++) assert.deepEqual(await step(compiled), expected);
        assert.equal(counter.frameCount, 1);
      });
    });
});
