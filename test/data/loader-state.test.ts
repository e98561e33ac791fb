/** The place of a `DataLoader`: where it is saved, and what may load it. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Checkpointer, launch } from '../../lib/distributed.js';
import { CheckpointError, loadCheckpoint, saveCheckpoint } from '../../lib/index.js';
import { all, loaderOf, some, sorted, streamOf, upTo } from './loaders.js';

describe('the state of a DataLoader', () => {
  it('is saved and loaded with a run, in one file and by several ranks', async () => {
    const folder = mkdtempSync(path.join(tmpdir(), 'shardwise-loader-'));
    try {
      const loader = loaderOf(upTo(20), { batchSize: 3, shuffle: true, seed: 5 });
      const before = await some(loader, 2);
      const file = path.join(folder, 'run.safetensors');
      await saveCheckpoint(file, { loader });
      const other = loaderOf(upTo(20), { batchSize: 3, shuffle: true });
      await loadCheckpoint(file, { loader: other });
      assert.deepEqual(sorted([...before, ...(await all(other))].flat()), upTo(20));
      const steps = path.join(folder, 'steps');
      const got: number[] = [];
      const run = (ranks: number, count: number) =>
        launch(ranks, async (rank) => {
          const data = loaderOf(upTo(30), { shuffle: true, numReplicas: ranks, rank });
          await using checkpointer = new Checkpointer({ folder: steps, every: 1, signals: false });
          const first = (await checkpointer.resume({ data })) ?? 0;
          got.push(...(await some(data, count)).flat());
          await checkpointer.save(first + 1, { data });
        });
      await run(4, 3);
      await run(2, 6);
      await run(3, 100);
      assert.deepEqual(sorted(got), upTo(30));
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it('refuses a place in another order', () => {
    const inOrder = { shuffled: { shuffle: true }, plain: {}, sampler: { sampler: [0] } };
    for (const [name, options] of Object.entries(inOrder))
      for (const [other, others] of Object.entries(inOrder)) {
        if (name === other) continue;
        const state = loaderOf(upTo(8), options).stateDict();
        assert.throws(
          () => loaderOf(upTo(8), others).loadStateDict(state),
          /expected the state of a loader whose order is .*; give the shuffle, bufferSize/,
        );
      }
    const state = loaderOf(streamOf(8), { shuffle: true, bufferSize: 4 }).stateDict();
    assert.throws(
      () => loaderOf(streamOf(8), { shuffle: true, bufferSize: 2 }).loadStateDict(state),
      CheckpointError,
    );
  });

  it('refuses the state of another dataset, and what is no state', () => {
    const loader = loaderOf(upTo(5), {});
    const state = loader.stateDict();
    assert.throws(() => loader.loadStateDict({ ...state, length: 6 }), {
      code: 'ERR_CHECKPOINT',
      message: /expected the state of a dataset of 5 samples, got that of one of 6/,
    });
    assert.throws(() => loader.loadStateDict({ ...state, position: -1 }), /position to be a whole/);
  });
});
