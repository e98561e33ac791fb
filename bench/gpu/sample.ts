/** Compares samples of our results with float64. */
import { float32, type Tensor } from '../../lib/index.js';
import type { Job } from './rows.js';
import type { Work } from './work.js';

/**
 * Tolerance as a fraction of the largest value of a sample. A row with a larger error gets no time.
 */
const allowedFor = (t: Tensor, job: Job): number =>
  job.precision === 'high' ? 3e-3 : t.dtype === float32 ? 1e-4 : 2e-2;

async function errorOf(got: Tensor, wanted: Tensor, job: Job): Promise<number> {
  const exact = got.detach().to('cpu').to(wanted.dtype);
  const largest = await wanted.abs().amax().itemAsync();
  return (await exact.sub(wanted).abs().amax().itemAsync()) / (largest * allowedFor(got, job));
}

/**
 * The largest error of the samples as a fraction of the tolerance; undefined without samples.
 * @throws Error if it is not finite, which JSON cannot represent
 */
export async function sampleError(work: Work, job: Job): Promise<number | undefined> {
  if (work.sample === undefined) return undefined;
  const errors: number[] = [];
  for (const [got, wanted] of work.sample()) errors.push(await errorOf(got, wanted, job));
  const error = Math.max(...errors);
  if (!Number.isFinite(error))
    throw new Error(`a sample is wrong: its distance from float64 is ${error}`);
  return error;
}
