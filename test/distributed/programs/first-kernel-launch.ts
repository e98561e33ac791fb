/**
 * Local ranks with a GPU each: one launches a kernel for the first time while a collective of the
 * others waits for it. Prints the sums of all ranks.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { allGatherIntoTensor, allReduce, launch } from '../../../lib/distributed.js';
import { bfloat16, cuda, eye, ones, type Tensor } from '../../../lib/index.js';

const SIDE = 512;
const device = 'cuda' as const;

/** Each of ones gives ones; the kernels are of different files, and of a library. */
const works: readonly ((t: Tensor) => Tensor)[] = [
  (t) => t.transpose(0, 1).contiguous(),
  (t) => t.cumsum(0).narrow(0, 0, 1).expand(SIDE, SIDE).contiguous(),
  (t) => t.sort(-1).values,
  (t) => t.matmul(eye(SIDE, { device })),
  (t) =>
    t
      .to(bfloat16)
      .matmul(eye(SIDE, { device, dtype: bfloat16 }))
      .to(t.dtype),
  (t) => t.softmax(-1).mul(SIDE),
];

const seen = await launch(cuda.deviceCount(), async (rank, size) => {
  let t = ones([SIDE, SIDE], { device });
  const whole = ones([size * SIDE, SIDE], { device });
  const sums: number[] = [];
  allReduce(ones([1], { device }));
  await t.read();
  for (const [i, work] of works.entries()) {
    if (rank === i % size) {
      await sleep(100);
      t = work(t);
    }
    allGatherIntoTensor(whole, t);
    sums.push(await whole.mean().itemAsync());
    if (rank === (i + 1) % size) await sleep(100);
    const small = (rank === (i + 1) % size ? work(t) : t).narrow(0, 0, 1).narrow(1, 0, 1).clone();
    allReduce(small, { op: 'avg' });
    sums.push(await small.itemAsync());
  }
  return sums;
});
console.log(JSON.stringify(seen));
