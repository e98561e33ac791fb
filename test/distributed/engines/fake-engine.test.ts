/** Fake worlds, in which one rank is real: results of collectives, fake tensors, and traffic. */
import assert from 'node:assert/strict';
import { FakeTensorMode } from '../../../lib/compile/index.js';
import { enterFakeWorld } from '../../../lib/distributed/launch/fake-world.js';
import {
  allGather,
  allGatherIntoTensor,
  allGatherObject,
  allReduce,
  allToAll,
  allToAllSingle,
  barrier,
  broadcast,
  broadcastObjectList,
  DeviceMesh,
  DistributedError,
  DTensor,
  destroyProcessGroup,
  gather,
  getRank,
  getWorldSize,
  initProcessGroup,
  isInitialized,
  newGroup,
  Partial,
  recv,
  reduce,
  reduceScatter,
  reduceScatterTensor,
  Shard,
  scatter,
  send,
  worldGroup,
} from '../../../lib/distributed.js';
import {
  ArgumentError,
  arange,
  float32,
  memory,
  ones,
  type Tensor,
  tensor,
  zeros,
} from '../../../lib/index.js';
import { FakeStore } from '../../../lib/testing/index.js';
import { onRanks } from '../support/on-ranks.js';
import { TrafficRecorder } from '../support/traffic-recorder.js';

const enter = (rank: number, worldSize: number): void =>
  void enterFakeWorld({ rank, worldSize, store: new FakeStore() });
const list = (t: Tensor): unknown => t.tolist();

describe('a fake world', () => {
  afterEach(() => destroyProcessGroup());

  it('has one real rank', async () => {
    for (const rank of [-1, 0.5])
      await assert.rejects(initProcessGroup('fake', { rank, worldSize: 4 }), /expected rank to be/);
    await assert.rejects(
      initProcessGroup('fake', { rank: 0, worldSize: 0 }),
      /expected worldSize to be/,
    );
    await assert.rejects(
      initProcessGroup('fake', { rank: 0, worldSize: 2 ** 53 - 1 }),
      /expected worldSize to be a whole number from 1 to 1048576/,
    );
    assert.equal(isInitialized(), false);
    await initProcessGroup('fake', { rank: 2, worldSize: 4 });
    assert.deepEqual([getRank(), getWorldSize()], [2, 4]);
  });

  it('has any size and never waits', async () => {
    enter(1, 3);
    assert.deepEqual([getRank(), getWorldSize(), worldGroup().ranks], [1, 3, [0, 1, 2]]);
    await barrier();
    const work = allReduce(ones([2]), { asyncOp: true });
    await work.wait();
    assert.ok(work.isSuccess());
    send(ones([2]), 0);
    const x = ones([2]);
    recv(x, 2);
    assert.deepEqual(list(x), [1, 1]);
  });

  it('computes as if all ranks had its own values', () => {
    enter(1, 3);
    const x = tensor([1, 2]);
    allReduce(x);
    broadcast(x, 0);
    reduce(x, 1);
    assert.deepEqual(list(x), [1, 2]);
    const gathered = [zeros([2]), zeros([2]), zeros([2])];
    allGather(gathered, x);
    assert.deepEqual(gathered.map(list), [
      [1, 2],
      [1, 2],
      [1, 2],
    ]);
    const uneven = [zeros([3]), zeros([2]), zeros([0])];
    allGather(uneven, x);
    assert.deepEqual(uneven.map(list), [[0, 0, 0], [1, 2], []]);
    const whole = zeros([3, 2]);
    allGatherIntoTensor(whole, x);
    assert.deepEqual(list(whole), [
      [1, 2],
      [1, 2],
      [1, 2],
    ]);
    const part = zeros([2]);
    reduceScatterTensor(part, arange(6, { dtype: float32 }));
    assert.deepEqual(list(part), [2, 3]);
    reduceScatter(part, [zeros([5]), tensor([7, 8]), zeros([1])]);
    assert.deepEqual(list(part), [7, 8]);
    const swapped = zeros([3]);
    allToAllSingle(swapped, tensor([4, 5, 6]));
    assert.deepEqual(list(swapped), [4, 5, 6]);
    const parts = [zeros([1]), zeros([1]), zeros([1])];
    allToAll(parts, [tensor([1]), tensor([2]), tensor([3])]);
    assert.deepEqual(parts.map(list), [[1], [2], [3]]);
    gather(x, { dst: 1, gatherList: gathered });
    assert.deepEqual(gathered.map(list), [
      [1, 2],
      [1, 2],
      [1, 2],
    ]);
    scatter(part, { src: 1, scatterList: [zeros([2]), tensor([3, 4]), zeros([2])] });
    assert.deepEqual(list(part), [3, 4]);
    scatter(part, { src: 0 });
    assert.deepEqual(list(part), [3, 4]);
  });

  it('accepts a rank beyond its size', async () => {
    enter(3, 2);
    assert.deepEqual([getRank(), getWorldSize()], [3, 2]);
    const parts = [zeros([2]), zeros([2])];
    allGather(parts, tensor([1, 2]));
    assert.deepEqual(parts.map(list), [
      [1, 2],
      [1, 2],
    ]);
    const part = zeros([1]);
    reduceScatterTensor(part, tensor([5, 6]));
    assert.deepEqual(list(part), [6]);
    const objects = [0, 0];
    await allGatherObject(objects, 'x');
    assert.deepEqual(objects, ['x', 'x']);
    assert.equal(newGroup([0, 1]).rank, -1);
    assert.equal(newGroup().rank, 3);
  });

  it('can be entered by a rank beyond its size, which has meshes of any ranks', async () => {
    await initProcessGroup('fake', { rank: 3, worldSize: 2, store: new FakeStore() });
    assert.deepEqual([getRank(), getWorldSize()], [3, 2]);
    const mesh = DeviceMesh('cpu', [1, 3]);
    assert.deepEqual(mesh.getCoordinate(), [1]);
    const x = ones([10, 257, 16], { requiresGrad: true });
    const partial = DTensor.fromLocal(x, mesh, [Partial()], { shape: x.shape, stride: x.stride() });
    const sharded = partial.redistribute(mesh, [Shard(1)]);
    assert.deepEqual(sharded.toLocal().shape, [10, 128, 16]);
    sharded.toLocal().sum().backward();
    assert.deepEqual(x.grad?.shape, x.shape);
    assert.throws(() => DeviceMesh('cpu', [1, -3]), ArgumentError);
    assert.throws(() => DeviceMesh.fromGroup(worldGroup(), 'cpu', { mesh: [1, 3] }), ArgumentError);
  });

  it('gathers and broadcasts its own objects', async () => {
    enter(0, 2);
    const objects = [null, null];
    await allGatherObject(objects, { a: 1 });
    assert.deepEqual(objects, [{ a: 1 }, { a: 1 }]);
    const sent = [1, 'two'];
    await broadcastObjectList(sent, 0);
    assert.deepEqual(sent, [1, 'two']);
  });

  it('accepts fake tensors without memory', () => {
    enter(0, 4096);
    memory.collect(); // what other tests have dropped
    const before = memory.stats().allocatedBytes;
    new FakeTensorMode().run(() => {
      const x = zeros([1 << 20, 1 << 10]);
      const all = zeros([4096 << 10, 1 << 20]);
      allReduce(x);
      allGatherIntoTensor(all, x);
      reduceScatterTensor(x.t(), all);
      allToAllSingle(x, x.mul(2));
      assert.deepEqual(
        [x.shape, all.shape],
        [
          [1 << 20, 1 << 10],
          [4096 << 10, 1 << 20],
        ],
      );
    });
    assert.ok(
      memory.stats().allocatedBytes <= before,
      `${memory.stats().allocatedBytes} bytes, ${before} before`,
    );
    const fake = new FakeTensorMode().fromTensor(ones([2]));
    allGatherIntoTensor(zeros([8192]), fake);
    allReduce(fake);
  });

  it('is entered once, with a rank and a size', () => {
    for (const [rank, size] of [
      [-1, 2],
      [0.5, 2],
      [0, 0],
      ['0', 2],
    ]) {
      assert.throws(
        () => enter(rank as number, size as number),
        (error: Error) =>
          error instanceof ArgumentError && /^initProcessGroup: /.test(error.message),
      );
    }
    enter(0, 2);
    assert.throws(() => enter(0, 2), DistributedError);
    destroyProcessGroup();
    assert.equal(isInitialized(), false);
    enter(1, 2);
  });

  it('of 4096 ranks creates groups at almost no cost', () => {
    enter(77, 4096);
    const rows = Array.from({ length: 64 }, (_, row) =>
      Array.from({ length: 64 }, (_, column) => 64 * row + column),
    );
    const begin = Date.now();
    for (let i = 0; i < 20; i++) for (const row of rows) newGroup(row);
    const world = Array.from({ length: 1000 }, () => newGroup());
    assert.ok(Date.now() - begin < 500, `${Date.now() - begin} ms`);
    assert.ok(world.every((group) => group.ranks === worldGroup().ranks));
  });
});

describe('a fake tensor in a world of real ranks', () => {
  it('is refused because it has no values to send', async () => {
    await onRanks(2, async () => {
      const fake = new FakeTensorMode().fromTensor(ones([2]));
      assert.throws(
        () => allReduce(fake),
        (error: Error) =>
          error instanceof DistributedError &&
          /^allReduce: fake tensors have no values/.test(error.message),
      );
    });
  });
});

describe('FakeStore', () => {
  it('keeps values and never waits', async () => {
    const store = new FakeStore();
    assert.equal((await store.get('never')).length, 0);
    await store.wait(['a', 'b']);
    await store.set('a', 'x');
    assert.equal((await store.get('a')).toString(), 'x');
    assert.equal(await store.add('n', 2), 2);
  });
});

describe('traffic', () => {
  afterEach(() => destroyProcessGroup());

  it('of one rank is that of ring algorithms, by group and name', () => {
    enter(1, 4);
    const pair = newGroup([1, 3]);
    const recorder = new TrafficRecorder();
    allReduce(zeros([8]));
    allReduce(zeros([8]), { group: pair });
    allReduce(zeros([8]), { group: pair });
    allGatherIntoTensor(zeros([16]), zeros([4]));
    reduceScatterTensor(zeros([4]), zeros([16]));
    const { groups } = recorder;
    assert.deepEqual(groups.get(worldGroup()), {
      calls: 3,
      sent: 4 * (12 + 12 + 12),
      received: 4 * (12 + 12 + 12),
      byName: { allReduce: 1, allGatherIntoTensor: 1, reduceScatterTensor: 1 },
    });
    assert.deepEqual(groups.get(pair), {
      calls: 2,
      sent: 64,
      received: 64,
      byName: { allReduce: 2 },
    });
    assert.deepEqual(recorder.total(), { calls: 5, sent: 208, received: 208 });
    recorder.stop();
    allReduce(zeros([8]));
    assert.equal(recorder.total().calls, 5);
  });

  it('of all ranks adds up: they receive as much as they send', async () => {
    for (const size of [1, 2, 3, 5]) {
      const recorder = new TrafficRecorder();
      await onRanks(size, async (rank) => {
        const sizes = Array.from({ length: size }, (_, r) => r + 2);
        const own = (): Tensor => zeros([rank + 2]);
        const all = (): Tensor[] => sizes.map((n) => zeros([n]));
        const root = size - 1;
        allReduce(zeros([size * 3]));
        allGather(all(), own());
        reduceScatter(own(), all());
        broadcast(zeros([5]), root);
        reduce(zeros([5]), root);
        allToAll(
          all(),
          all().map(() => own()),
        );
        gather(zeros([3]), {
          dst: root,
          ...(rank === root ? { gatherList: sizes.map(() => zeros([3])) } : {}),
        });
        scatter(zeros([3]), {
          src: root,
          ...(rank === root ? { scatterList: sizes.map(() => zeros([3])) } : {}),
        });
        if (size > 1 && rank === 0) send(zeros([4]), 1);
        if (rank === 1) recv(zeros([4]), 0);
        await barrier();
      });
      recorder.stop();
      const { sent, received } = recorder.total();
      assert.ok(
        Math.abs(sent - received) < 1e-6,
        `${size} ranks: ${sent} sent, ${received} received`,
      );
      assert.equal(sent > 0, size > 1);
    }
  });
});
