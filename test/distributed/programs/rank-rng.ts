/** Prints the draws of each rank, in a program that has seeded its random numbers or not. */
import { dtensorRandn, initDeviceMesh, launch } from '../../../lib/distributed.js';
import { manualSeed, rand, randn } from '../../../lib/index.js';

const [mode, seeds = ''] = process.argv.slice(2) as ['local' | 'process', string?];

/** A plain number, and one of a tensor that all ranks have. */
async function drawn(rank: number): Promise<number[]> {
  const mesh = initDeviceMesh('cpu', [2]);
  const plain = randn([1]);
  if (rank === 1) rand([1]);
  return Promise.all(
    [plain, dtensorRandn([1], { mesh }).toLocal()].map(async (t) => (await t.read())[0] as number),
  );
}

if (seeds === 'by the program') {
  manualSeed(7);
  rand([2]);
}
const options = { mode, ...(seeds === 'by launch' ? { seed: 3 } : {}) };
process.stdout.write(
  JSON.stringify([await launch(2, drawn, options), await launch(2, drawn, options)]),
);
