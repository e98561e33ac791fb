/**
 * Shared by the programs of this folder: timing by medians, printed as one JSON object per line.
 */
import { cuda, type DeviceName } from '../lib/index.js';
import { median } from './figures.js';

/** One line of output. `burst` is the number of calls that were timed together. */
export interface Row {
  name: string;
  unit: 'us' | 'ms' | 'GFLOP/s' | 'MB' | 'times';
  value: number;
  burst?: number;
}

/** The device of the command line; by default a GPU if one can be used. */
export const device = (process.argv[2] ?? (cuda.isAvailable() ? 'cuda' : 'cpu')) as DeviceName;

export function print(row: Row): void {
  console.log(JSON.stringify({ ...row, value: +row.value.toPrecision(4) }));
}

/** Calls after which the engine has compiled a small call: before, a call of 4 us takes 15. */
const WARM_CALLS = 5000;
const WARM_MS = 500;

/**
 * Milliseconds per call, measured in bursts that `settle` waits for: the median after a warm-up.
 */
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
