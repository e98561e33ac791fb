/**
 * Fake tensors of distributed ones keep their placements, and a fake rank may be beyond its world.
 */
import assert from 'node:assert/strict';
import { FakeTensorMode } from '../../lib/compile/index.js';
import {
  DeviceMesh,
  DTensor,
  destroyProcessGroup,
  distributeTensor,
  getRank,
  getWorldSize,
  initDeviceMesh,
  initProcessGroup,
  Partial,
  Shard,
} from '../../lib/distributed.js';
import { randn, type Tensor } from '../../lib/index.js';

/** Shapes and strides, of the whole tensor and of the local shard. */
const layout = (t: Tensor): unknown => {
  const { _localTensor: local } = t;
  return [t.shape, t.stride(), local.shape, local.stride(), String(t.placements)];
};

describe('FakeTensorMode.fromTensor of a distributed tensor', () => {
  afterEach(() => destroyProcessGroup());

  it('keeps placements, mesh, shapes and strides, at a rank beyond the size of its world', async () => {
    await initProcessGroup('fake', { rank: 3, worldSize: 2 });
    assert.deepEqual([getRank(), getWorldSize()], [3, 2]);
    const mesh = new DeviceMesh('cpu', [1, 3]);
    assert.deepEqual(mesh.getCoordinate(), [1]);
    const local = randn([10, 257, 160], { requiresGrad: true });
    const partial = DTensor.fromLocal(local, mesh, [new Partial()], {
      shape: [10, 257, 160],
      stride: [41120, 160, 1],
    });
    const real = partial.redistribute(mesh, [new Shard(1)]);
    const fake = new FakeTensorMode().fromTensor(real);
    assert.deepEqual(layout(fake), layout(real));
    assert.deepEqual(fake._localTensor.shape, [10, 128, 160]);
    assert.equal(fake.deviceMesh, mesh);
    assert.equal(fake instanceof DTensor && fake.isFake && fake._localTensor.isFake, true);
    assert.equal(fake.requiresGrad && fake.isLeaf, true);
  });

  it('keeps the strides of a local shard with gaps, and runs ops on it', async () => {
    await initProcessGroup('fake', { rank: 0, worldSize: 2 });
    const mesh = await initDeviceMesh('cpu', [2]);
    const real = (await distributeTensor(randn([6, 4]), mesh, [new Shard(0)])).t();
    const mode = new FakeTensorMode();
    const fake = mode.fromTensor(real);
    assert.deepEqual(layout(fake), layout(real));
    assert.equal(real._localTensor.isFake, false);
    const [sum, expected] = [mode.run(() => fake.mul(2).sum(0)), real.mul(2).sum(0)];
    assert.deepEqual(layout(sum), layout(expected));
  });
});
