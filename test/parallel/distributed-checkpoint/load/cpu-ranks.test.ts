/** Checkpoints of CPU ranks leave GPUs alone. */
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { cudaBackendCandidates } from '../../../../lib/native/load.js';
import { runProgram } from '../../../run-program.js';
import { skipBecause } from '../../../skip.js';

describe('distributedCheckpoint of CPU ranks', () => {
  it('opens no CUDA driver, which takes longer than many a load', async function () {
    if (!cudaBackendCandidates().some((file) => existsSync(file)))
      skipBecause(this, 'this build has no CUDA backend');
    const folder = mkdtempSync(path.join(tmpdir(), 'shardwise-cpu-ranks-'));
    try {
      const name = 'parallel/distributed-checkpoint/load/cpu-ranks';
      assert.deepEqual(await runProgram(name, folder), { opened: 0 });
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });
});
