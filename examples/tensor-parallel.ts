/**
 * Trains a feed-forward network sharded over four ranks, and the same network on one rank. Prints
 * the shards, the communication and its reasons, and equal losses of both.
 *
 *   node --import tsx examples/tensor-parallel.ts
 */
import {
  ColwiseParallel,
  CommDebugMode,
  initDeviceMesh,
  launch,
  parallelizeModule,
  RowwiseParallel,
  visualizeSharding,
} from '../lib/distributed.js';
import { manualSeed, mseLoss, nn, optim, randn, type Tensor } from '../lib/index.js';

const RANKS = 4;
const STEPS = 5;

class FeedForward extends nn.Module {
  up = new nn.Linear(8, 32);
  down = new nn.Linear(32, 8);

  forward(x: Tensor): Tensor {
    return this.down(this.up(x).gelu());
  }
}

/** The same network, with the same values on every rank. */
function seeded(): FeedForward {
  manualSeed(7);
  return new FeedForward();
}

/** Losses of a few steps; every rank gives each step the same data. */
async function train(model: FeedForward): Promise<number[]> {
  const optimizer = new optim.AdamW(model.parameters(), { lr: 1e-2 });
  manualSeed(8);
  const [x, y] = [randn([16, 8]), randn([16, 8])];
  const losses: number[] = [];
  for (let step = 0; step < STEPS; step++) {
    const loss = mseLoss(model(x), y);
    loss.backward();
    optimizer.step();
    optimizer.zeroGrad();
    // Local ranks must not block, because the other ranks need the thread.
    losses.push(await loss.itemAsync());
  }
  return losses;
}

/** The program of each rank. */
async function rankProgram(rank: number): Promise<void> {
  const mesh = initDeviceMesh('cpu', [RANKS], { meshDimNames: ['tp'] });
  const model = parallelizeModule(seeded(), mesh, {
    up: ColwiseParallel(),
    down: RowwiseParallel(),
  });
  visualizeSharding(model.up.weight);
  visualizeSharding(model.down.weight);
  const comm = new CommDebugMode();
  const losses = await comm.run(() => train(model));
  const alone = await train(seeded());
  if (rank !== 0) return;
  console.log(`\n${comm}\n`);
  losses.forEach((loss, step) =>
    console.log(
      `step ${step}: loss ${loss.toFixed(6)} on ${RANKS} ranks, ${(alone[step] as number).toFixed(6)} on one`,
    ),
  );
}

await launch(RANKS, rankProgram);
