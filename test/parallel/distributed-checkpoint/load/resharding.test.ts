/** A checkpoint of any mesh loads on any other one, to the bit, and each rank reads its own bytes. */
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import {
  type CheckpointState,
  type DeviceMesh,
  DTensor,
  distributedCheckpoint,
  distributeTensor,
  initDeviceMesh,
  type LoadedCheckpoint,
  launch,
  Partial,
  type Placement,
  Replicate,
  Shard,
} from '../../../../lib/distributed.js';
import {
  arange,
  bfloat16,
  bool,
  float32,
  loadSafetensors,
  type Tensor,
  tensor,
  zeros,
} from '../../../../lib/index.js';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'shardwise-reshard-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const MIB = 2 ** 20;

/** Values that differ from element to element. */
const counted = (shape: readonly number[], scale = 1): Tensor =>
  arange(
    shape.reduce((a, b) => a * b, 1),
    { dtype: float32 },
  )
    .mul(scale)
    .reshape(shape);

/** The tensors of a state: uneven in every dim, some smaller than the number of ranks. */
const shapes: Record<string, readonly number[]> = {
  rows: [7, 5],
  wide: [3, 17],
  few: [2],
  cube: [5, 4, 6],
  scalar: [],
  empty: [0, 3],
};

type Layout = readonly [mesh: readonly number[], placements: (ndim: number) => Placement[]];

const layouts: Record<string, Layout> = {
  'one rank': [[1], () => [Replicate()]],
  '4 ranks by rows': [[4], (ndim) => [ndim > 0 ? Shard(0) : Replicate()]],
  '3 ranks by rows': [[3], (ndim) => [ndim > 0 ? Shard(0) : Replicate()]],
  '2 x 2 ranks by rows and columns': [
    [2, 2],
    (ndim) => [ndim > 0 ? Shard(0) : Replicate(), ndim > 1 ? Shard(1) : Replicate()],
  ],
  '2 x 2 ranks, replicated and by columns': [
    [2, 2],
    (ndim) => [Replicate(), ndim > 1 ? Shard(ndim - 1) : Replicate()],
  ],
  '3 ranks, replicated': [[3], () => [Replicate()]],
};

/** Runs `fn` on the ranks of a layout. */
function onRanks<T>(
  [mesh, placements]: Layout,
  fn: (distribute: (t: Tensor) => Tensor, mesh: DeviceMesh) => Promise<T>,
): Promise<T[]> {
  const size = mesh.reduce((a, b) => a * b, 1);
  return launch(size, () => {
    const made = initDeviceMesh('cpu', mesh);
    return fn((t) => distributeTensor(t, made, placements(t.dim())), made);
  });
}

const stateOf = (distribute: (t: Tensor) => Tensor, make: (shape: readonly number[]) => Tensor) =>
  Object.fromEntries(
    Object.entries(shapes).map(([name, shape]) => [name, distribute(make(shape))]),
  ) as Record<string, Tensor>;

const valuesOf = async (t: Tensor): Promise<number[]> =>
  [...(await (t instanceof DTensor ? t.fullTensor() : t).read())] as number[];

describe('a distributed checkpoint', () => {
  for (const [from, saver] of Object.entries(layouts))
    for (const [to, loader] of Object.entries(layouts))
      it(`saved by ${from} loads on ${to}, to the bit`, async () => {
        await onRanks(saver, (distribute) =>
          distributedCheckpoint.save(folder, { model: stateOf(distribute, counted), step: 7 }),
        );
        await onRanks(loader, async (distribute) => {
          const model = stateOf(distribute, (shape) => zeros(shape));
          const state: CheckpointState = { model, step: 0 };
          const { bytes, bytesRead } = await distributedCheckpoint.load(folder, state);
          assert.equal(state['step'], 7);
          for (const [name, shape] of Object.entries(shapes))
            assert.deepEqual(await valuesOf(model[name] as Tensor), await valuesOf(counted(shape)));
          assert.ok(bytesRead >= bytes && bytesRead <= bytes + MIB);
        });
      });

  it('survives a journey over 1, 4, 2 x 2 and 3 ranks and back', async () => {
    const names = [
      'one rank',
      '4 ranks by rows',
      '2 x 2 ranks by rows and columns',
      '3 ranks by rows',
      'one rank',
    ];
    await onRanks(layouts['one rank'] as Layout, (distribute) =>
      distributedCheckpoint.save(folder, stateOf(distribute, counted)),
    );
    for (const name of names)
      await onRanks(layouts[name] as Layout, async (distribute) => {
        const state = stateOf(distribute, (shape) => zeros(shape));
        await distributedCheckpoint.load(folder, state);
        for (const [key, shape] of Object.entries(shapes))
          assert.deepEqual(await valuesOf(state[key] as Tensor), await valuesOf(counted(shape)));
        await distributedCheckpoint.save(folder, state);
      });
  });

  it('fits any shape, number of ranks and sharded dim', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 3 }),
        fc.tuple(fc.integer({ min: 1, max: 4 }), fc.nat(2)),
        fc.tuple(fc.integer({ min: 1, max: 4 }), fc.nat(2)),
        async (shape, [fromRanks, fromDim], [toRanks, toDim]) => {
          const layout = (ranks: number, dim: number): Layout => [
            [ranks],
            () => [Shard(dim % shape.length)],
          ];
          await onRanks(layout(fromRanks, fromDim), (distribute) =>
            distributedCheckpoint.save(folder, { t: distribute(counted(shape)) }),
          );
          await onRanks(layout(toRanks, toDim), async (distribute) => {
            const t = distribute(zeros(shape));
            const { bytes, bytesRead } = await distributedCheckpoint.load(folder, { t });
            assert.deepEqual(await valuesOf(t), await valuesOf(counted(shape)));
            assert.ok(bytesRead <= bytes + MIB);
          });
        },
      ),
      { numRuns: 25 },
    );
  });

  it('reads no more than its own bytes of a large tensor, by rows and by columns', async () => {
    const shape = [1024, 1024];
    await onRanks(layouts['4 ranks by rows'] as Layout, (distribute) =>
      distributedCheckpoint.save(folder, { t: distribute(counted(shape)) }),
    );
    for (const dim of [0, 1]) {
      const loaded = await onRanks([[3], () => [Shard(dim)]], async (distribute) => {
        const t = distribute(zeros(shape));
        const { bytes, bytesRead }: LoadedCheckpoint = await distributedCheckpoint.load(folder, {
          t,
        });
        assert.deepEqual(await valuesOf(t), await valuesOf(counted(shape)));
        return { bytes, bytesRead };
      });
      assert.equal(
        loaded.reduce((sum, { bytes }) => sum + bytes, 0),
        4 * MIB,
      );
      for (const { bytes, bytesRead } of loaded) assert.ok(bytesRead <= bytes + MIB);
    }
  });

  it('stores each element once, spread over the ranks that have it', async () => {
    await launch(4, async () => {
      const state = { large: counted([64, 64]), a: counted([32]), b: counted([32]) };
      await distributedCheckpoint.save(folder, state);
    });
    const files = readdirSync(folder).filter((name) => name.endsWith('.safetensors'));
    assert.equal(files.length, 4);
    const sizes = await Promise.all(
      files.map(async (name) => {
        const tensors = Object.values(await loadSafetensors(path.join(folder, name)));
        return tensors.reduce((sum, t) => sum + t.nbytes, 0);
      }),
    );
    assert.equal(
      sizes.reduce((a, b) => a + b, 0),
      64 * 64 * 4 + 2 * 128,
    );
    assert.ok(Math.max(...sizes) - Math.min(...sizes) <= 2 * 1024, String(sizes));
  });

  it('saves partial values as their sum, and loads them back so that the sum is the same', async () => {
    await launch(2, async () => {
      const mesh = initDeviceMesh('cpu', [2]);
      const t = DTensor.fromLocal(counted([4]), mesh, [Partial()]);
      await distributedCheckpoint.save(folder, { t });
      const other = DTensor.fromLocal(zeros([4]), mesh, [Partial()]);
      await distributedCheckpoint.load(folder, { t: other });
      assert.deepEqual(await valuesOf(other), [0, 2, 4, 6]);
    });
  });

  it('keeps dtypes, values that JSON lacks, and names that a path could misread', async () => {
    const state: CheckpointState = {
      half: counted([3]).to(bfloat16),
      flags: tensor([true, false, true], { dtype: bool }),
      nested: { list: [1, 2, { deep: 'x' }], none: null, yes: true },
      best: Number.POSITIVE_INFINITY,
      large: 2n ** 70n,
    };
    await distributedCheckpoint.save(folder, state);
    const loaded: CheckpointState = {
      half: zeros([3], { dtype: bfloat16 }),
      flags: zeros([3], { dtype: bool }),
      nested: { list: [], none: 3, yes: false },
      best: 0,
      large: 0,
    };
    await distributedCheckpoint.load(folder, loaded);
    assert.deepEqual((loaded['half'] as Tensor).tolist(), [0, 1, 2]);
    assert.deepEqual((loaded['flags'] as Tensor).tolist(), [true, false, true]);
    assert.deepEqual(loaded['nested'], state['nested']);
    assert.equal(loaded['best'], Number.POSITIVE_INFINITY);
    assert.equal(loaded['large'], 2n ** 70n);
  });
});
