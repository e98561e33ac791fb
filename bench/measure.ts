/** What every program of this folder measures with, and prints: one JSON object a line, medians. */
import { cuda, type DeviceName } from '../lib/index.js';
import { median } from './figures.js';

/** One line of a program. `burst` says how many calls were timed together. */
export interface Row {
  name: string;
  unit: 'us' | 'ms' | 'GFLOP/s' | 'MB';
  value: number;
  burst?: number;
}

/** The device that the command line names, else a GPU if there is one. */
export const device = (process.argv[2] ?? (cuda.isAvailable() ? 'cuda' : 'cpu')) as DeviceName;

export function print(row: Row): void {
  console.log(JSON.stringify({ ...row, value: +row.value.toPrecision(4) }));
}

/**
 * Calls after which the engine has compiled what a small call runs: until then one of some 4 us
 * takes 15.
 */
const WARM_CALLS = 5000;
const WARM_MS = 500;

/** Milliseconds a call of work that `settle` waits for, in bursts: the median after a warm-up. */
export async function millisecondsOf(
  work: () => void,
  settle: () => Promise<unknown>,
  burst: number,
  repeats: number,
): Promise<number> {
  const once = async (): Promise<number> => {
    const start = performance.now();
    for (let i = 0; i < burst; i++) work();
    await settle();
    return performance.now() - start;
  };
  for (
    let calls = 0, ms = 0, r = 0;
    r < 3 || (calls < WARM_CALLS && ms < WARM_MS);
    calls += burst, r++
  )
    ms += await once();
  const times: number[] = [];
  for (let r = 0; r < repeats; r++) times.push((await once()) / burst);
  return median(times);
}
