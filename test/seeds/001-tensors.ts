/** The cases of functions on distributed tensors that PyTorch's test_dtensor_compile.py has on GPUs. */
import assert from 'node:assert/strict';
import {
  DeviceMesh,
  DTensor,
  destroyProcessGroup,
  initProcessGroup,
  Partial,
  type Placement,
  Replicate,
  Shard,
} from '../../lib/distributed.js';
import { compile, manualSeed, nn, ones, randn, type Tensor } from '../../lib/index.js';
import { CompileCounterWithBackend, FakeStore } from '../../lib/testing/index.js';
import { valuesOf } from '../distributed/support/on-ranks.js';
import { assertAsEager, type BACKENDS, FULL, factsOf } from './compiled.js';
import { onMesh, type World } from './worlds.js';

type Backend = (typeof BACKENDS)[number];

const UNEVEN = [10, 257, 160] as const;

/** 001.11, with ranks that exist: the result is contiguous, its shards differ in size. */
export async function takesUnevenGradients(backend: Backend, world: World): Promise<void> {
  await onMesh(
    2,
    async (mesh) => {
      const counter = CompileCounterWithBackend(backend);
      const fn = (x: DTensor): Tensor => x.redistribute(mesh, [Shard(1)]);
      const compiled = compile(fn, { ...FULL, backend: counter });
      await assertAsEager(fn, compiled, async (run) => {
        manualSeed(11);
        const x = randn(UNEVEN, { device: world.device, requiresGrad: true });
        const out = run(DTensor.fromLocal(x, mesh, [Partial()])) as DTensor;
        out.toLocal().sum().backward();
        return factsOf([out, x.grad]);
      });
      assert.equal(counter.frameCount, 1);
    },
    world,
  );
}

/** 001.11, as rank 3 of a world that does not exist. */
export async function takesUnevenGradientsOfFakeRanks(
  backend: Backend,
  { device }: World,
): Promise<void> {
  await initProcessGroup('fake', { store: new FakeStore(), rank: 3, worldSize: 2 });
  try {
    const mesh = new DeviceMesh(device, [1, 3]);
    const counter = CompileCounterWithBackend(backend);
    const fn = (x: DTensor): Tensor => x.redistribute(mesh, [Shard(1)]);
    const compiled = compile(fn, { ...FULL, backend: counter });
    await assertAsEager(fn, compiled, async (run) => {
      manualSeed(11);
      const x = randn(UNEVEN, { device, requiresGrad: true });
      const partial = DTensor.fromLocal(x, mesh, [Partial()], {
        shape: UNEVEN,
        stride: [41120, 160, 1],
      });
      const out = run(partial as DTensor) as DTensor;
      out.toLocal().sum().backward();
      // Collectives of ranks that do not exist give no values.
      return (await factsOf([out, x.grad])).map((facts) => ({
        ...(facts as object),
        values: null,
      }));
    });
    assert.equal(counter.frameCount, 1);
  } finally {
    destroyProcessGroup();
  }
}

/** 001.14: the gradient of a result has other placements and strides than the result. */
export async function takesOtherGradients(backend: Backend, world: World): Promise<void> {
  await onMesh(
    2,
    async (mesh) => {
      const counter = CompileCounterWithBackend(backend);
      const fn = (x: Tensor, y: Tensor, z: Tensor): Tensor =>
        nn.functional.layerNorm(x.permute(0, 2, 1).contiguous(), [4], y, z).permute(0, 2, 1);
      const compiled = compile(fn, { ...FULL, backend: counter });
      const place =
        (placement: Placement) =>
        (out: DTensor, x: Tensor): Tensor =>
          out.redistribute(mesh, [placement]).mul(x);
      const uses = [
        (out: DTensor, x: Tensor): Tensor => out.matmul(x),
        place(Shard(1)),
        place(Replicate()),
      ];
      for (const use of uses)
        await assertAsEager(fn, compiled, async (run) => {
          manualSeed(14);
          const leaves = [[4, 2, 4], [4], [4]].map((shape) =>
            randn(shape, { device: world.device, requiresGrad: true }),
          );
          const placements = [Shard(1), Replicate(), Replicate()];
          const [x, y, z] = leaves.map((leaf, i) =>
            DTensor.fromLocal(leaf, mesh, [placements[i] as Placement]),
          ) as [Tensor, Tensor, Tensor];
          const out = run(x, y, z) as DTensor;
          use(out, x).permute(0, 2, 1).sum().backward();
          return factsOf([out, ...leaves.map((leaf) => leaf.grad)]);
        });
      assert.equal(counter.frameCount, 1);
    },
    world,
  );
}

/** 001.16: a branch by the device of the mesh of an argument. */
export async function readsDeviceOfMesh(backend: Backend, world: World): Promise<void> {
  await onMesh(
    2,
    async (mesh) => {
      const counter = CompileCounterWithBackend(backend);
      const fn = (x: DTensor): Tensor => (x.deviceMesh.deviceType === 'cuda' ? x.add(1) : x.add(2));
      const compiled = compile(fn, { ...FULL, backend: counter });
      const x = DTensor.fromLocal(ones([4, 4], { device: world.device }), mesh, [Shard(0)]);
      const expected = world.device === 'cuda' ? 2 : 3;
      for (let call = 0; call < 2; call++)
        assert.deepEqual(await valuesOf(compiled(x)), Array(32).fill(expected));
      assert.deepEqual([counter.frameCount, counter.opCount], [1, 1]);
    },
    world,
  );
}

/** 001.18: a result that is not reduced yet. */
export async function returnsPartialSums(backend: Backend, world: World): Promise<void> {
  await onMesh(
    2,
    async (mesh) => {
      const counter = CompileCounterWithBackend(backend);
      const fn = (x: Tensor): Tensor => x.add(x);
      const compiled = compile(fn, { ...FULL, backend: counter });
      await assertAsEager(fn, compiled, async (run) => {
        manualSeed(18);
        const [x, y] = [0, 1].map(() =>
          randn([4, 4], { device: world.device, requiresGrad: true }),
        ) as [Tensor, Tensor];
        const out = run(DTensor.fromLocal(x, mesh, [Partial()])) as DTensor;
        assert.deepEqual(out.placements.map(String), [String(Partial())]);
        out
          .matmul(DTensor.fromLocal(y, mesh, [Replicate()]))
          .sum()
          .backward();
        return factsOf([out, x.grad, y.grad]);
      });
      assert.equal(counter.frameCount, 1);
    },
    world,
  );
}
