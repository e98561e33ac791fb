/** Sharding rules of custom ops, and typed contexts of their gradients. */
import assert from 'node:assert/strict';
import {
  CommDebugMode,
  type DTensor,
  distributeTensor,
  initDeviceMesh,
  launch,
  Partial,
  Replicate,
  registerSharding,
  Shard,
} from '../../lib/distributed.js';
import {
  ArgumentError,
  arange,
  library,
  manualSeed,
  ones,
  randn,
  type Tensor,
} from '../../lib/index.js';

let count = 0;
const fresh = (): string => `tests::sharded_${count++}`;

/** x * k + the sum of a list, with a gradient. */
function scaledSum() {
  return library
    .customOp(fresh(), {}, (x: Tensor, k: number, list: readonly Tensor[]) =>
      list.reduce((sum, t) => sum.add(t), x.mul(k)),
    )
    .registerFake((x) => x)
    .registerAutograd({
      setupContext: (_ctx, [, k, list]) => ({ k, length: list.length }),
      backward: ({ k, length }, grad) => [grad?.mul(k), null, Array(length).fill(grad)],
    });
}

/** Runs the op on two ranks with both tensors sharded by rows; returns what it communicates. */
async function onRanks(op: ReturnType<typeof scaledSum>): Promise<void> {
  await launch(2, async () => {
    manualSeed(0);
    const [x, y] = [randn([4, 3]), randn([4, 3])];
    const mesh = initDeviceMesh('cpu', [2]);
    const [dx, dy] = [x, y].map((t) => distributeTensor(t, mesh, [Shard(0)]).requiresGrad_());
    const mode = new CommDebugMode();
    const out = mode.run(() => op(dx as Tensor, 2, [dy as Tensor]));
    assert.equal(mode.getTotalCounts(), 0);
    assert.deepEqual((out as DTensor).placements, [Shard(0)]);
    const whole = await (out as DTensor).fullTensor().read();
    assert.deepEqual(whole, await x.mul(2).add(y).read());
    out.sum().backward();
    const gradient = ((dx as Tensor).grad as DTensor).fullTensor();
    assert.deepEqual(await gradient.read(), await ones([4, 3]).mul(2).read());
  });
}

describe('a sharding rule of a custom op', () => {
  const byRows = (x: Tensor, _k: number, list: readonly Tensor[]) =>
    x.shape.map((_, dim) => ({
      inputs: [Shard(dim), null, list.map(() => Shard(dim))],
      outputs: [Shard(dim)],
    }));

  it('keeps shards where they are, with the gradient of one device', () =>
    onRanks(registerSharding(scaledSum(), byRows)));

  it('counts from its registration on, also after calls without it', async () => {
    const op = scaledSum();
    await launch(2, () => {
      const t = distributeTensor(ones([4]), initDeviceMesh('cpu', [2]), [Shard(0)]);
      assert.deepEqual((op(t, 1, [t]) as DTensor).placements, [Replicate()]);
    });
    await onRanks(op.registerSharding(byRows));
  });

  it('may reduce along a sharded dim by Partial', async () => {
    const total = library
      .customOp(fresh(), {}, (x: Tensor) => x.sum())
      .registerFake(() => ({ shape: [] }))
      .registerSharding((x) =>
        x.shape.map((_, dim) => ({ inputs: [Shard(dim)], outputs: [Partial()] })),
      );
    await launch(2, async () => {
      const x = distributeTensor(arange(6), initDeviceMesh('cpu', [2]), [Shard(0)]);
      assert.equal(await (total(x) as DTensor).fullTensor().itemAsync(), 15);
    });
  });

  it('is refused if it does not fit the arguments, exists already, or the op changes arguments', async () => {
    const wrong = scaledSum().registerSharding(() => [{ inputs: [Shard(0)], outputs: [Shard(0)] }]);
    await launch(2, () => {
      const t = distributeTensor(ones([4]), initDeviceMesh('cpu', [2]), [Shard(0)]);
      assert.throws(
        () => wrong(t, 1, [t]),
        /has 0 placements for argument 2, which holds 1 tensors/,
      );
    });
    assert.throws(() => wrong.registerSharding(byRows), ArgumentError);
    const changing = library.customOp(fresh(), { mutatesArgs: [0] }, (x: Tensor) => void x.add_(1));
    assert.throws(() => changing.registerSharding(() => []), /takes no sharding rule/);
  });
});
