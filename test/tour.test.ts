/** The library in one page: read it from top to bottom. Each test is one capability. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import {
  allReduce,
  ColwiseParallel,
  distributeTensor,
  initDeviceMesh,
  parallelizeModule,
  Replicate,
  RowwiseParallel,
  Shard,
} from '../lib/distributed.js';
import {
  arange,
  autograd,
  compile,
  float32,
  full,
  loadSafetensors,
  manualSeed,
  mseLoss,
  nn,
  optim,
  randn,
  saveSafetensors,
  type Tensor,
  tensor,
} from '../lib/index.js';
import { withRanks } from '../lib/testing/index.js';

/** A regression problem and a model, with equal values on every rank. */
function problem(): { x: Tensor; y: Tensor; model: nn.Sequential } {
  manualSeed(0);
  const x = randn([64, 8]);
  const model = new nn.Sequential(new nn.Linear(8, 32), new nn.ReLU(), new nn.Linear(32, 1));
  return { x, y: x.sin().sum(1, true), model };
}

/** Losses of `steps` steps with Adam. */
async function train(model: nn.Module, x: Tensor, y: Tensor, steps: number): Promise<number[]> {
  const optimizer = new optim.Adam(model.parameters(), { lr: 0.01 });
  const losses: number[] = [];
  for (let step = 0; step < steps; step++) {
    optimizer.zeroGrad();
    const loss = mseLoss(model(x), y);
    loss.backward();
    optimizer.step();
    // A local rank must await values: the other ranks run in the same thread.
    losses.push(await loss.itemAsync());
  }
  return losses;
}

describe('the library', () => {
  it('has tensors with views, broadcasting and dtypes, as in PyTorch', () => {
    const x = arange(6, { dtype: float32 }).reshape(2, 3);
    x.select(0, 1).mul_(10); // writes through the view
    assert.deepEqual(x.add(tensor([1, 0, 0])).tolist(), [
      [1, 1, 2],
      [31, 40, 50],
    ]);
    assert.equal(x.half().matmul(x.half().t()).dtype.name, 'float16');
  });

  it('differentiates, also a second time', () => {
    const x = tensor([1, 2], { requiresGrad: true });
    const [g] = autograd.grad(x.pow(3).sum(), x, { createGraph: true });
    assert.deepEqual(g?.tolist(), [3, 12]);
    g?.sum().backward();
    assert.deepEqual(x.grad?.tolist(), [6, 12]);
  });

  it('trains a model with nn and optim', async () => {
    const { x, y, model } = problem();
    const losses = await train(model, x, y, 100);
    assert.ok((losses.at(-1) as number) < 0.1 * (losses[0] as number));
  });

  it('compiles a function to a graph that computes the same', () => {
    const fn = (t: Tensor): Tensor => t.mul(2).relu().sum();
    const x = randn([4]);
    assert.equal(compile(fn, { fullgraph: true })(x).item(), fn(x).item());
  });

  it('saves a model to a safetensors file and loads it', async () => {
    const folder = mkdtempSync(path.join(tmpdir(), 'shardwise-tour-'));
    try {
      const file = path.join(folder, 'model.safetensors');
      const { x, model } = problem();
      await saveSafetensors(file, model.stateDict());
      const other = new nn.Sequential(new nn.Linear(8, 32), new nn.ReLU(), new nn.Linear(32, 1));
      other.loadStateDict(await loadSafetensors(file));
      assert.ok(other(x).equal(model(x)));
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it('runs collectives on local ranks, which are functions of this process', async () => {
    await withRanks(4, async (rank) => {
      const t = full([2], rank);
      allReduce(t);
      assert.deepEqual([...(await t.read())], [6, 6]);
    });
  });

  it('shards a tensor over a mesh and computes on it as on the whole', async () => {
    await withRanks(4, async () => {
      const mesh = initDeviceMesh('cpu', [4]);
      const whole = arange(24, { dtype: float32 }).reshape(6, 4);
      const sharded = distributeTensor(whole, mesh, [Shard(0)]);
      const product = sharded.matmul(distributeTensor(whole.t(), mesh, [Replicate()]));
      assert.equal(String(product.placements), 'Shard(0)');
      const expected = await whole.matmul(whole.t()).read();
      assert.deepEqual(await product.fullTensor().read(), expected);
    });
  });

  it('trains a tensor-parallel model on four ranks as on one', async () => {
    const alone = problem();
    const expected = await train(alone.model, alone.x, alone.y, 5);
    await withRanks(4, async () => {
      const { x, y, model } = problem();
      const mesh = initDeviceMesh('cpu', [4]);
      parallelizeModule(model, mesh, { 0: ColwiseParallel(), 2: RowwiseParallel() });
      const losses = await train(model, x, y, 5);
      losses.forEach((loss, i) => assert.ok(Math.abs(loss - (expected[i] as number)) < 1e-5));
    });
  });
});
