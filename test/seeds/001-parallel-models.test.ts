/** Parallel models as PyTorch's test_dtensor_compile.py requires them: one frame, results of eager. */
import { withRanks } from '../../lib/testing/index.js';
import { CASES, RANKS } from './001-parallel-models.js';
import { leavesNoMemory } from './compiled.js';

/** Every rank loads the library first, which takes long on a busy machine. */
const PROCESSES = { mode: 'process', timeoutMs: 120_000 } as const;

describe('a parallel model in one frame', () => {
  leavesNoMemory();

  for (const { title, backends, run } of CASES)
    for (const backend of backends)
      it(
        `${title}, backend ${backend}`,
        withRanks(RANKS, (rank) => run(backend, 'cpu', rank)),
      );

  it(
    'seed 001.20 to 001.24: all are the same on ranks that are processes',
    withRanks(
      RANKS,
      async (rank) => {
        for (const { backends, run } of CASES)
          for (const backend of backends) await run(backend, 'cpu', rank);
      },
      PROCESSES,
    ),
  );
});
