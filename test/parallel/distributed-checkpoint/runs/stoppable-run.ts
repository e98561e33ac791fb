/**
 * A run of 3 process ranks that saves to `<folder>` every `<every>` steps and at a signal. Rank 0
 * prints each step; the weights count the steps.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Checkpointer, fullyShard, launch } from '../../../../lib/distributed.js';
import { nn, noGrad } from '../../../../lib/index.js';

const [folder, every, last] = process.argv.slice(2) as [string, string, string];

await launch(
  3,
  async (rank) => {
    const model = fullyShard(new nn.Linear(4, 7));
    noGrad(() => {
      for (const parameter of model.parameters()) parameter.zero_();
    });
    const state = { model, position: 0 };
    const checkpointer = new Checkpointer({ folder, every: Number(every), keep: 2 });
    const first = (await checkpointer.resume(state)) ?? 0;
    if (rank === 0) console.log(`from ${first} at ${state.position}`);
    console.log(`rank ${rank} is ${process.pid}`);
    for (let step = first + 1; step <= Number(last); step++) {
      noGrad(() => {
        for (const parameter of model.parameters()) parameter.add_(1);
      });
      state.position = step;
      await sleep(5 + 3 * rank);
      if (rank === 0) console.log(`step ${step}`);
      await checkpointer.step(step, state);
    }
    await checkpointer.close();
  },
  { mode: 'process', prefixOutput: false },
);
