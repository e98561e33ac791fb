/**
 * Products beside communication between ranks that are processes, one GPU each: gathered operands,
 * scattered sums, a product while another tensor is gathered. The same rows as peer_overlap.py.
 * usage: overlap.ts [ranks] [product], the products beside gathers alone
 */
import { fileURLToPath } from 'node:url';
import {
  allGatherIntoTensor,
  barrier,
  destroyProcessGroup,
  getRank,
  getWorldSize,
  initProcessGroup,
  launch,
  reduceScatterTensor,
} from '../lib/distributed.js';
import { bfloat16, cuda, noGrad, randn, scope, type Tensor } from '../lib/index.js';
import { median } from './figures.js';

const ROUNDS = 9;
const SIDE = 4096;
const random = (...size: number[]): Tensor => randn(size, { device: 'cuda', dtype: bfloat16 });

/** Microseconds per call by the device's clock, between the two events that `timed` records. */
async function timeOf(
  timed: (begin: () => void, end: () => void) => void,
  calls = 1,
): Promise<number> {
  const times: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    await barrier();
    const [before, after] = [
      new cuda.Event({ enableTiming: true }),
      new cuda.Event({ enableTiming: true }),
    ];
    noGrad(() =>
      scope(() =>
        timed(
          () => before.record(),
          () => after.record(),
        ),
      ),
    );
    await cuda.synchronize();
    times.push((before.elapsedTime(after) * 1e3) / calls);
  }
  return median(times.slice(2));
}

const batchOf = (work: () => void) =>
  timeOf((begin, end) => {
    work();
    begin();
    for (let i = 0; i < 10; i++) work();
    end();
  }, 10);

function print(name: string, us: number): void {
  if (getRank() === 0)
    console.log(JSON.stringify({ name: `${name}, ${getWorldSize()} ranks`, us: +us.toFixed(1) }));
}

async function gatheredAndScattered(world: number, rows: number): Promise<void> {
  const [x, whole, w] = [random(rows, SIDE), random(rows * world, SIDE), random(SIDE, SIDE)];
  const gathered = await batchOf(() => {
    allGatherIntoTensor(whole, x);
    whole.matmul(w);
  });
  print(`all-gather + matmul, ${rows} x ${SIDE} x ${SIDE} a rank`, gathered);
  print(
    `matmul + reduce-scatter, ${rows} x ${SIDE} x ${SIDE} a rank`,
    await batchOf(() => void reduceScatterTensor(x, whole.matmul(w))),
  );
}

/**
 * Matmul of Llama's first feed-forward layer while the weights of the next block, 436 MB, are
 * gathered.
 */
async function productBesideGather(world: number): Promise<void> {
  const [x, w] = [random(8192, SIDE), random(SIDE, 14336)];
  const share = Math.floor(218_000_000 / world);
  const [part, whole] = [random(share), random(share * world)];
  const alone = (begin: () => void, end: () => void): void => {
    x.matmul(w);
    begin();
    x.matmul(w);
    end();
  };
  print('matmul 8192 x 14336 x 4096 alone', await timeOf(alone));
  const beside = (begin: () => void, end: () => void): void => {
    x.matmul(w);
    const work = allGatherIntoTensor(whole, part, { asyncOp: true });
    begin();
    x.matmul(w);
    end();
    work.wait();
  };
  print('matmul 8192 x 14336 x 4096 beside an all-gather of 436 MB', await timeOf(beside));
}

if (process.env['RANK'] === undefined) {
  await launch(Number(process.argv[2] ?? cuda.deviceCount()), fileURLToPath(import.meta.url), {
    args: process.argv.slice(2),
    prefixOutput: false,
  });
} else {
  await initProcessGroup();
  for (const rows of process.argv[3] === 'product' ? [] : [1024, 4096])
    await gatheredAndScattered(getWorldSize(), rows);
  await productBesideGather(getWorldSize());
  destroyProcessGroup();
}
