/**
 * A few seconds of `npm run fuzz` with a fixed seed and the usual addon. Each target runs in its
 * own process.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { programArguments } from '../run-program.js';
import { isFault, runTrial, shownTrial, type Trial } from './faults.js';

const cases = { ops: 1000, addon: 2000, workers: 6, checkpoint: 800 };

describe('fuzzing', () => {
  for (const [target, count] of Object.entries(cases)) {
    it(`finds nothing in ${count} cases of ${target}`, function () {
      this.timeout(120_000);
      const { status, signal, stdout, stderr } = spawnSync(
        process.execPath,
        [...programArguments('fuzz/child'), target, '1', '0', String(count), '100'],
        {
          encoding: 'utf8',
          env: { ...process.env, SHARDWISE_CPU_MEMORY_LIMIT: String(256 * 2 ** 20) },
        },
      );
      assert.equal(
        status,
        0,
        `${signal ?? ''}\n${stderr}\nagain: npm run fuzz -- --plain --target ${target} --seed 1`,
      );
      assert.match(stdout, new RegExp(`${target}: ${count} cases`));
    });
  }

  it('finds nothing in signals to ranks and to a launcher', async function () {
    this.timeout(120_000);
    const common = {
      backend: 'shm',
      mode: 'await',
      grouped: true,
      moment: 'running',
      delayMs: 100,
    } as const;
    const trials: Trial[] = [
      { ...common, number: 0, launched: false, signal: 'SIGKILL', victim: 1 },
      { ...common, number: 1, launched: true, signal: 'SIGTERM', victim: -1 },
    ];
    for (const trial of trials) {
      const outcome = await runTrial(trial);
      assert.ok(
        outcome !== null && !isFault(outcome) && outcome.unnamed.length === 0,
        `${shownTrial(trial)}: ${JSON.stringify(outcome)}`,
      );
    }
  });
});
