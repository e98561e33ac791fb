/**
 * A program that saves `<folder>` on 2 process ranks again and again, each time a state whose tensors
 * all have the value of the step. It is killed by whoever started it.
 */
import {
  distributedCheckpoint,
  distributeTensor,
  initDeviceMesh,
  launch,
  Shard,
} from '../../../../lib/distributed.js';
import { full } from '../../../../lib/index.js';

const [folder, form] = process.argv.slice(2) as [string, string];

await launch(
  2,
  async (rank) => {
    const mesh = initDeviceMesh('cpu', [2]);
    const state = { step: 0, a: full([1], 0), b: full([1], 0) };
    const started = await distributedCheckpoint
      .load(folder, { step: 0 }, { strict: false })
      .catch(() => null);
    const first = { step: 0 };
    if (started !== null) await distributedCheckpoint.load(folder, first, { strict: false });
    for (let step = first.step + 1; ; step++) {
      state.step = step;
      state.a = distributeTensor(full([3000, 64], step), mesh, [Shard(0)]);
      state.b = full([50_000], step);
      if (form === 'async') await distributedCheckpoint.save(folder, state, { async: true });
      else await distributedCheckpoint.save(folder, state);
      if (rank === 0) process.stdout.write(`saved ${step} by ${process.pid}\n`);
      else process.stdout.write(`other ${process.pid}\n`);
    }
  },
  { mode: 'process', prefixOutput: false },
);
