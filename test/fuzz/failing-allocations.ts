/**
 * `npm run fuzz -- memory`: lets allocations of a training step fail, with more and more room for
 * it, and compares what lives afterwards and the next step with those of before.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { programArguments } from '../run-program.js';

export const stepKinds = ['eager', 'aot_eager', 'inductor', 'fullyShard', 'ddp', 'flat'] as const;
export type StepKind = (typeof stepKinds)[number];

const LIMIT_BYTES = 8 * 2 ** 20;
const MOST_MS = 300_000;

/** How many steps of a kind have failed. @throws what is wrong */
export async function failingAllocations(kind: StepKind): Promise<number> {
  const { stdout } = await promisify(execFile)(
    process.execPath,
    [...programArguments('fuzz/failing-allocations-body'), kind],
    {
      timeout: MOST_MS,
      killSignal: 'SIGKILL',
      env: { ...process.env, SHARDWISE_CPU_MEMORY_LIMIT: String(LIMIT_BYTES) },
    },
  );
  return Number(stdout);
}
