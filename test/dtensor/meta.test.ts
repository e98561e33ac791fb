/** Distributed tensors whose local shards are on the device `meta`. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  allReduce,
  CommDebugMode,
  DTensor,
  distributeTensor,
  initDeviceMesh,
  Replicate,
  Shard,
} from '../../lib/distributed.js';
import {
  DeviceError,
  empty,
  manualSeed,
  nn,
  ones,
  type Tensor,
  withDevice,
} from '../../lib/index.js';
import { reusedRanks } from '../distributed/support/reused-ranks.js';

const onMeta = (shape: readonly number[]): Tensor => empty(shape, { device: 'meta' });

describe('distributed tensors on meta', () => {
  const ranks = reusedRanks(4);

  it('come from distributeTensor without communication, with the local shapes of real ones', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.integer({ min: 0, max: 9 }), { minLength: 2, maxLength: 2 }),
        fc.array(fc.constantFrom(Replicate(), Shard(0), Shard(1)), { minLength: 2, maxLength: 2 }),
        async (shape, placements) => {
          await ranks.run(() => {
            const mesh = initDeviceMesh('cpu', [2, 2]);
            const real = distributeTensor(empty(shape), mesh, placements);
            const comm = new CommDebugMode();
            const meta = comm.run(() => distributeTensor(onMeta(shape), mesh, placements));
            assert.equal(comm.getTotalCounts(), 0);
            assert.deepEqual(meta.toLocal().shape, real.toLocal().shape);
            assert.deepEqual([meta.isMeta, meta.shape], [true, shape]);
            assert.equal(meta._spec, real._spec);
          });
        },
      ),
      { numRuns: 20 },
    );
  });

  it('get real shards of the same placements by toEmpty, and the values of one device by resetParameters', () =>
    ranks.run(async () => {
      const mesh = initDeviceMesh('cpu', [4]);
      manualSeed(3);
      const expected = new nn.Linear(5, 7);
      const model = withDevice('meta', () => new nn.Linear(5, 7));
      for (const name of ['weight', 'bias'] as const)
        model[name] = new nn.Parameter(
          distributeTensor((model[name] as Tensor).detach(), mesh, [Shard(0)]),
        );
      const { weight } = model;
      const spec = weight._spec;
      model.toEmpty({ device: 'cpu' });
      assert.equal(model.weight, weight);
      assert.equal(weight._spec, spec);
      assert.ok(weight.isCpu && weight.toLocal().isCpu && weight instanceof DTensor);
      manualSeed(3);
      model.resetParameters();
      const values = await model.weight.fullTensor().read();
      assert.deepEqual(values, await expected.weight.read());
    }));

  it('cannot be sent: a collective of a tensor on meta is refused, and the group goes on', () =>
    ranks.run(async () => {
      assert.throws(
        () => allReduce(onMeta([3])),
        (error: Error) =>
          error instanceof DeviceError && /^allReduce: .* on meta/.test(error.message),
      );
      const t = ones([1]);
      allReduce(t);
      assert.deepEqual([...(await t.read())], [4]);
    }));

  it('compute forward and backward on shapes, and collectives are not run', () =>
    ranks.run(() => {
      const mesh = initDeviceMesh('cpu', [4]);
      const weight = distributeTensor(onMeta([8, 6]), mesh, [Shard(1)]).requiresGrad_();
      const x = distributeTensor(onMeta([3, 6]), mesh, [Replicate()]);
      const y = nn.functional.linear(x, weight);
      const whole = y.redistribute([Replicate()]);
      assert.deepEqual([whole.isMeta, whole.shape, whole.toLocal().shape], [true, [3, 8], [3, 8]]);
      whole.sum().backward();
      assert.deepEqual(weight.grad?.shape, [8, 6]);
      assert.deepEqual(weight.grad?.toLocal().shape, weight.toLocal().shape);
    }));
});
