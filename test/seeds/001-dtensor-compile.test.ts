/** Compiled functions on distributed tensors as PyTorch's test_dtensor_compile.py requires them. */
import assert from 'node:assert/strict';
import {
  type DeviceMesh,
  DTensor,
  initDeviceMesh,
  Partial,
  type Placement,
  Replicate,
  Shard,
} from '../../lib/distributed.js';
import { compile, manualSeed, nn, ones, rand, randn, type Tensor } from '../../lib/index.js';
import { CompileCounterWithBackend } from '../../lib/testing/index.js';
import { valuesOf } from '../distributed/support/on-ranks.js';
import {
  readsDeviceOfMesh,
  returnsPartialSums,
  takesOtherGradients,
  takesUnevenGradients,
  takesUnevenGradientsOfFakeRanks,
} from './001-tensors.js';
import { assertAsEager, BACKENDS, FULL, factsOf, leavesNoMemory } from './compiled.js';
import { CPU, onMesh } from './worlds.js';

for (const backend of BACKENDS) {
  const counted = () => CompileCounterWithBackend(backend);

  describe(`a compiled function on distributed tensors, backend ${backend}`, () => {
    leavesNoMemory();

    it('seed 001.1: takes a placement, with one frame of no op for each', () => {
      const counter = counted();
      const fn = (x: Placement): number => {
        let a = 0;
        if (x.isReplicate()) a += 1;
        if (x.isShard()) {
          a += 2;
          if (x.dim < 0) throw new Error('dim < 0');
        }
        if (x.isShard(0)) a += 2;
        if (x.isShard(0)) a += 2;
        if (x.isShard(undefined)) a += 2;
        if (x.isPartial()) a += 3;
        return a;
      };
      const compiled = compile(fn, { ...FULL, backend: counter });
      const placements: Placement[] = [Shard(0), Replicate(), Partial(), Shard(0)];
      assert.deepEqual(
        placements.map((each) => compiled(each)),
        [8, 1, 3, 8],
      );
      assert.deepEqual([counter.frameCount, counter.opCount], [3, 0]);
    });

    it('seed 001.2: takes a mesh, and returns its group', async () => {
      await onMesh(2, async (mesh, rank) => {
        const counter = counted();
        const fn = (m: DeviceMesh) =>
          [m.size() + m.size(0) + m.size(0), m.getCoordinate(), m.getGroup(0)] as const;
        const compiled = compile(fn, { ...FULL, backend: counter });
        for (let call = 0; call < 2; call++) {
          const [size, coordinate, group] = compiled(mesh);
          assert.deepEqual([size, coordinate], [6, [rank]]);
          assert.equal(group, mesh.getGroup(0));
        }
        const other = initDeviceMesh('cpu', [1, 2]);
        assert.deepEqual(compiled(other).slice(0, 2), [4, [0, rank]]);
        assert.equal(counter.frameCount, 2);
      });
    });

    it('seed 001.3: returns its argument itself', async () => {
      await onMesh(2, async (mesh) => {
        const compiled = compile((x: DTensor) => x, { ...FULL, backend });
        const make = () => DTensor.fromLocal(rand([1]), mesh, [Shard(0)]);
        for (let call = 0; call < 2; call++) {
          const x = make();
          assert.equal(compiled(x), x);
          const leaf = make().requiresGrad_();
          assert.equal(compiled(leaf), leaf);
          compiled(leaf).mul(3).sum().backward();
          assert.deepEqual(await valuesOf(leaf.grad as Tensor), [3, 3]);
        }
      });
    });

    it('seed 001.4: computes on local shards, anew for another placement', async () => {
      await onMesh(2, async (mesh) => {
        const counter = counted();
        const fn = (x: Tensor): Tensor => x.mul(x).add(2);
        const compiled = compile(fn, { ...FULL, backend: counter });
        for (const placement of [Shard(0), Replicate()])
          await assertAsEager(fn, compiled, (run) => {
            manualSeed(3);
            return factsOf([run(DTensor.fromLocal(rand([1]), mesh, [placement]))]);
          });
        assert.equal(counter.frameCount, 2);
      });
    });

    it('seed 001.5: reads placements and the local shard of an intermediate', async () => {
      await onMesh(2, async (mesh) => {
        const counter = counted();
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

    it('seed 001.8: returns a distributed tensor that is not contiguous', async () => {
      await onMesh(2, async (mesh) => {
        const counter = counted();
        const fn = (x: Tensor, y: Tensor, z: Tensor): Tensor =>
          nn.functional.linear(x.permute(0, 2, 1).contiguous(), y, z).permute(0, 2, 1);
        const compiled = compile(fn, { ...FULL, backend: counter });
        await assertAsEager(fn, compiled, async (run) => {
          manualSeed(8);
          const leaves = [randn([4, 16, 4]), randn([4, 16]), randn([4])];
          for (const leaf of leaves) leaf.requiresGrad_();
          const placements = [Shard(1), Shard(1), Replicate()];
          const [x, y, z] = leaves.map((leaf, i) =>
            DTensor.fromLocal(leaf, mesh, [placements[i] as Placement]),
          ) as [Tensor, Tensor, Tensor];
          const out = run(x, y, z) as DTensor;
          assert.deepEqual(
            [out.placements.map(String), out.shape],
            [[String(Partial())], [4, 4, 4]],
          );
          out.contiguous().sum().backward();
          return factsOf([out, ...leaves.map((leaf) => leaf.grad)]);
        });
        assert.equal(counter.frameCount, 1);
      });
    });

    it('seed 001.9: makes a distributed tensor of its argument, by both call forms', async () => {
      await onMesh(2, async (mesh) => {
        const counter = counted();
        const placements = [Replicate()];
        const forms = [
          (x: Tensor) => DTensor.fromLocal(x, mesh, placements).toLocal().add(2),
          (x: Tensor) =>
            DTensor.fromLocal(x, mesh, placements, { runCheck: false }).toLocal().add(2),
        ];
        for (const [i, fn] of forms.entries()) {
          const compiled = compile(fn, { ...FULL, backend: counter });
          await assertAsEager(fn, compiled, async (run) => {
            const x = ones([1], { requiresGrad: true });
            const out = run(x);
            out.sum().backward();
            assert.deepEqual([out.tolist(), x.grad?.tolist()], [[3], [1]]);
            return factsOf([out, x.grad]);
          });
          assert.equal(counter.frameCount, i + 1);
        }
      });
    });

    it('seed 001.11: takes a gradient for a result whose shards differ in size', () =>
      takesUnevenGradients(backend, CPU));

    it('seed 001.11: takes it as a rank beyond the size of its world', () =>
      takesUnevenGradientsOfFakeRanks(backend, CPU));

    it('seed 001.12: reads a distributed tensor that it closes over, as it is now', async () => {
      await onMesh(2, async (mesh) => {
        const counter = counted();
        const dt = DTensor.fromLocal(ones([4]), mesh, [Replicate()]);
        const fn = (_x: Tensor): Tensor => dt.toLocal({ gradPlacements: [Shard(0)] }).add(2);
        const compiled = compile(fn, { ...FULL, backend: counter });
        for (const value of [1, 1, 5]) {
          dt.fill_(value);
          assert.deepEqual(compiled(dt).tolist(), Array(4).fill(value + 2));
        }
        assert.equal(counter.frameCount, 1);
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
        const eager = (t: Tensor): Tensor => model(t);
        const compiled = compile(model, { ...FULL, backend });
        let captured = 0;
        await assertAsEager(eager, compiled as (t: Tensor) => Tensor, async (run) => {
          model.zeroGrad();
          const out = run(x);
          out.sum().backward();
          if (captured === 0 && run !== eager) captured = runs;
          return factsOf([out, model.weight.grad, model.bias?.grad]);
        });
        assert.equal(runs, captured);
      });
    });

    it('seed 001.14: takes a gradient of other placements and strides than its result', () =>
      takesOtherGradients(backend, CPU));

    it('seed 001.15: redistributes a distributed tensor that it creates', async () => {
      await onMesh(2, async (mesh) => {
        const counter = counted();
        const fn = (x: Tensor): Tensor =>
          DTensor.fromLocal(x, mesh, [Shard(0)])
            .redistribute(mesh, [Replicate()])
            .toLocal()
            .add(2);
        const options = (x: Tensor): Tensor =>
          DTensor.fromLocal(x, mesh, [Shard(0)], { runCheck: false })
            .redistribute(mesh, [Replicate()], { asyncOp: false })
            .toLocal()
            .add(2);
        for (const [i, form] of [fn, options].entries()) {
          const compiled = compile(form, { ...FULL, backend: counter });
          for (let call = 0; call < 2; call++)
            assert.deepEqual(await valuesOf(compiled(ones([1]))), [3, 3]);
          assert.equal(counter.frameCount, i + 1);
        }
      });
    });

    it('seed 001.16: reads the device of the mesh of an argument', () =>
      readsDeviceOfMesh(backend, CPU));

    it('seed 001.18: returns sums that are not yet reduced', () =>
      returnsPartialSums(backend, CPU));
  });
}
