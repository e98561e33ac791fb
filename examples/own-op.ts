/**
 * An op of your own: a gradient that finite differences check, kernels of `compile`, and two ways to
 * run it on shards, by rows and by columns.
 *
 *   node --import tsx examples/own-op.ts
 */
import assert from 'node:assert/strict';
import {
  distributeTensor,
  initDeviceMesh,
  launch,
  Partial,
  Replicate,
  registerSharding,
  Shard,
} from '../lib/distributed.js';
import { autograd, compile, library, manualSeed, randn, type Tensor } from '../lib/index.js';

/** The sum over columns of x * tanh(scale * x): [rows, columns] to [rows]. */
const gatedSum = library
  .customOp('example::gated_sum', {}, (x: Tensor, scale: number) =>
    x.mul(x.mul(scale).tanh()).sum(1),
  )
  .registerFake((x) => ({ shape: [x.shape[0] as number] }))
  .registerAutograd({
    setupContext: (_ctx, [x, scale]) => ({ x, scale }),
    backward: ({ x, scale }, grad) => {
      const t = x.mul(scale).tanh();
      const slope = t.add(x.mul(scale).mul(t.square().neg().add(1)));
      return [grad?.unsqueeze(1).mul(slope), null];
    },
  });

/** Rows divide the result. Columns give each rank a part of the sums. */
registerSharding(gatedSum, () => [
  { inputs: [Shard(0), null], outputs: [Shard(0)] },
  { inputs: [Shard(1), null], outputs: [Partial()] },
]);

manualSeed(0);
const point = randn([4, 3], { dtype: 'float64', requiresGrad: true });
assert.ok(autograd.gradcheck((x) => gatedSum(x, 0.7), [point]));
console.log('its gradient is that of finite differences');

const loss = (x: Tensor): Tensor => gatedSum(x.sin(), 0.7).exp().sum();
const compiled = compile(loss, { fullgraph: true });
const x = randn([64, 32]);
assert.equal(compiled(x).item(), loss(x).item());
console.log('a function with it compiles to one graph, with equal results');

const lines = await launch(4, async () => {
  const mesh = initDeviceMesh('cpu', [4]);
  manualSeed(1); // the same values on each rank
  const values = randn([64, 32]);
  const found: string[] = [];
  for (const placement of [Shard(0), Shard(1)]) {
    const shards = distributeTensor(values, mesh, [placement]).requiresGrad_();
    const sums = gatedSum(shards, 0.7);
    sums.redistribute(mesh, [Replicate()]).sum().backward();
    const whole = values.clone().requiresGrad_();
    gatedSum(whole, 0.7).sum().backward();
    const [actual, expected] = [shards.grad?.fullTensor(), whole.grad];
    const difference = await actual
      ?.sub(expected as Tensor)
      .abs()
      .amax()
      .itemAsync();
    assert.ok((difference ?? 1) < 1e-5);
    found.push(`${placement} gives ${sums.placements}, with the gradient of one rank`);
  }
  return found;
});
for (const line of lines[0] ?? []) console.log(line);
