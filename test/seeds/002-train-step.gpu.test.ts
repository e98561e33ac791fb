/** Seed 002 on GPUs, with the widths of test_transformation.py: two ranks of one process. */
import { CASES, scalesOf } from './002-cases.js';
import { writesGraphs } from './002-written-graphs.js';
import { describeOnGpus } from './worlds.js';

const WORLD = 2;

describeOnGpus('compiled train steps', (world) => {
  it('seed 002.3: the main graph is compiled, and all graphs are written to files', async () => {
    await world.onRanks(WORLD, (rank) => writesGraphs(world.device, rank));
  });

  // One dtype is enough to compare collectives of ranks with a GPU each.
  for (const scale of scalesOf(4096, 'cuda').slice(0, world.gpus === 1 ? 2 : 1))
    for (const [title, run] of Object.entries(CASES))
      it(`${title}, in ${scale.title}`, async () => {
        await world.onRanks(WORLD, (rank) => run(rank, scale));
      });
});
