/** Functions on local shards equal those on plain tensors, with their gradients. */
import assert from 'node:assert/strict';
import {
  DTensor,
  distributeTensor,
  functional,
  initDeviceMesh,
  localMap,
  Partial,
  Replicate,
  Shard,
  ShardingError,
} from '../../lib/distributed.js';
import {
  ArgumentError,
  compile,
  full,
  manualSeed,
  ones,
  randn,
  type Tensor,
} from '../../lib/index.js';
import { withRanks } from '../../lib/testing/index.js';

const whole = async (t: Tensor | null): Promise<number[]> => [
  ...((await (t as DTensor).fullTensor().read()) as Float32Array),
];

async function assertSame(t: Tensor | null, plain: Tensor | null): Promise<void> {
  assert.deepEqual(t?.shape, plain?.shape);
  const wanted = [...((await (plain as Tensor).read()) as Float32Array)];
  (await whole(t)).forEach((value, i) => {
    assert.ok(Math.abs(value - (wanted[i] as number)) < 1e-5, `${value} is ${wanted[i]} at ${i}`);
  });
}

const leaf = (t: Tensor): Tensor => t.detach().clone().requiresGrad_();

describe('localMap', () => {
  for (const rows of [6, 5, 1])
    it(`runs a function on shards of ${rows} rows, with its gradients`, () =>
      withRanks(2, async () => {
        const mesh = initDeviceMesh('cpu', [2]);
        manualSeed(1);
        const [x, w] = [leaf(randn([rows, 3])), leaf(randn([3, 4]))];
        const dx = distributeTensor(x, mesh, [Shard(0)]);
        const dw = distributeTensor(w, mesh, [Replicate()]);
        const fn = (a: Tensor, b: Tensor): Tensor => a.matmul(b).tanh();
        const y = localMap(fn, [Shard(0)], [[Shard(0)], [Replicate()]])(dx, dw);
        const plain = fn(x, w);
        await assertSame(y, plain);
        assert.deepEqual((y as DTensor).placements, [Shard(0)]);
        y.square().sum().backward();
        plain.square().sum().backward();
        await assertSame(dx.grad, x.grad);
        await assertSame(dw.grad, w.grad);
      })());

  it('gives partial and replicated results, of two mesh dims and another dim', () =>
    withRanks(4, async () => {
      const mesh = initDeviceMesh('cpu', [2, 2]);
      manualSeed(1);
      const [x, w] = [leaf(randn([5, 6])), leaf(randn([6, 3]))];
      const dx = distributeTensor(x, mesh, [Shard(0), Shard(1)]);
      const dw = distributeTensor(w, mesh, [Replicate(), Shard(0)]);
      const product = localMap((a: Tensor, b: Tensor) => a.matmul(b), [Shard(0), Partial()]);
      const y = product(dx, dw);
      const plain = x.matmul(w);
      await assertSame(y, plain);
      y.square().sum().backward();
      plain.square().sum().backward();
      await assertSame(dx.grad, x.grad);
      await assertSame(dw.grad, w.grad);

      const turned = localMap((t: Tensor) => t.t(), [Shard(1), Shard(0)])(dx);
      await assertSame(turned, x.detach().t());
      const both = distributeTensor(x.detach(), mesh, [Shard(0), Shard(0)]);
      await assertSame(
        localMap((t: Tensor) => t.neg(), [Shard(0), Shard(0)])(both),
        x.detach().neg(),
      );
    })());

  it('does not add gradients of replicated inputs of replicated results', () =>
    withRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2]);
      const w = distributeTensor(ones([3], { requiresGrad: true }), mesh, [Replicate()]);
      localMap(
        (t: Tensor) => t.mul(3),
        [Replicate()],
      )(w)
        .sum()
        .backward();
      assert.deepEqual(await whole(w.grad), [3, 3, 3]);
      const two = localMap((t: Tensor) => [t.mul(3), t.mul(2)], [[Replicate()], [Partial()]]);
      assert.throws(() => two(w), /only some results are.*Pass inGradPlacements/s);
      const told = localMap(
        (t: Tensor) => [t.mul(3), t.mul(2)],
        [[Replicate()], [Partial()]],
        null,
        {
          inGradPlacements: [[Replicate()]],
        },
      );
      w.grad = null;
      const [first] = told(w);
      first?.sum().backward();
      assert.deepEqual(await whole(w.grad), [3, 3, 3]);
    })());

  it('lets the function communicate', () =>
    withRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2]);
      const x = distributeTensor(ones([4, 2], { requiresGrad: true }), mesh, [Shard(0)]);
      const total = localMap(
        (t: Tensor) => functional.allReduce(t.sum(), 'sum', mesh.getGroup(0)),
        [Replicate()],
        [[Shard(0)]],
      );
      assert.deepEqual(await whole(total(x)), [8]);
    })());

  it('takes trees, values that are no tensors, and calls without distributed tensors', () =>
    withRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2]);
      const x = distributeTensor(ones([5]), mesh, [Shard(0)]);
      const fn = localMap(
        ({ t, by }: { t: Tensor; by: number }, name: string, plain: Tensor) => ({
          y: [t.mul(by).add(plain)],
          name,
        }),
        [[Shard(0)], null],
        [[Shard(0)], null, null, null],
      );
      const { y, name } = fn({ t: x, by: 3 }, 'n', ones([1]));
      assert.equal(name, 'n');
      assert.deepEqual(await whole(y[0] as Tensor), [4, 4, 4, 4, 4]);
      const plain = localMap((t: Tensor) => t.mul(2), [Shard(0)])(ones([3]));
      assert.ok(!(plain instanceof DTensor));
    })());

  it('redistributes inputs if asked, and refuses other placements otherwise', () =>
    withRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2]);
      const x = distributeTensor(ones([5, 4]), mesh, [Shard(0)]);
      const double = (t: Tensor): Tensor => t.mul(2);
      assert.throws(
        () => localMap(double, [Shard(1)], [[Shard(1)]])(x),
        (error: Error) =>
          error instanceof ShardingError &&
          /as \[Shard\(1\)\], got \[Shard\(0\)\]/.test(error.message),
      );
      const y = localMap(double, [Shard(1)], [[Shard(1)]], { redistributeInputs: true })(x);
      assert.deepEqual(y.shape, [5, 4]);
      assert.deepEqual((y as DTensor).placements, [Shard(1)]);
      assert.deepEqual(await whole(y), Array(20).fill(2));
    })());

  it('gives results of new sizes where shards are even, and refuses them where they are not', () =>
    withRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2]);
      const even = distributeTensor(ones([4]), mesh, [Shard(0)]);
      const twice = localMap((t: Tensor) => t.repeat(2), [Shard(0)]);
      assert.deepEqual(twice(even).shape, [8]);
      const uneven = distributeTensor(ones([5]), mesh, [Shard(0)]);
      assert.throws(() => twice(uneven), /of 5 elements, which do not divide evenly over 2 ranks/);
      const other = distributeTensor(ones([6]), mesh, [Shard(0)]);
      const first = localMap((a: Tensor, _b: Tensor) => a.neg(), [Shard(0)]);
      assert.throws(() => first(uneven, other), /of 5 or 6 elements/);
    })());

  it('is a part of compiled functions', () =>
    withRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2]);
      const double = localMap((t: Tensor, w: Tensor) => t.mul(w), [Shard(0)]);
      const fn = (x: Tensor, w: Tensor): Tensor => double(x, w).sum();
      const compiled = compile(fn, { fullgraph: true, backend: 'aot_eager' });
      const grads: number[][] = [];
      for (const run of [fn, compiled, compiled]) {
        const x = distributeTensor(ones([5, 3], { requiresGrad: true }), mesh, [Shard(0)]);
        const w = distributeTensor(full([3], 2, { requiresGrad: true }), mesh, [Replicate()]);
        run(x, w).backward();
        grads.push([...(await whole(x.grad)), ...(await whole(w.grad))]);
      }
      assert.deepEqual(grads[0], [...Array(15).fill(2), 5, 5, 5]);
      assert.deepEqual(grads[1], grads[0]);
      assert.deepEqual(grads[2], grads[0]);
    })());

  it('refuses what is no list of placements, and results that do not fit', () =>
    withRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2]);
      const x = distributeTensor(ones([4]), mesh, [Shard(0)]);
      const same = (t: Tensor): Tensor => t.neg();
      assert.throws(() => localMap(3 as never, [Shard(0)]), ArgumentError);
      assert.throws(() => localMap(same, [3] as never), ArgumentError);
      assert.throws(() => localMap(same, [Shard(0)], [Shard(0)] as never), ArgumentError);
      assert.throws(
        () => localMap(same, [[Shard(0)], [Shard(0)]])(x),
        /outPlacements of each leaf of the result, which has 1, got 2/,
      );
      assert.throws(
        () => localMap(same, [Shard(0)], [])(x),
        /inPlacements of each leaf.*has 1, got 0/,
      );
      assert.throws(() => localMap(same, null)(x), /expected leaf 0 of the result to be no tensor/);
      assert.throws(() => localMap((_t: Tensor) => x, [Shard(0)])(x), /to be a plain tensor/);
      const other = initDeviceMesh('cpu', [1, 2]);
      const run = localMap(same, [Replicate(), Shard(0)], null, { deviceMesh: other });
      assert.throws(() => run(x), /expected inputs on the/);
    })());
});
