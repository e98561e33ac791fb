/** The end of a rank: checks for unobserved failures, and tells the other ranks why it failed. */
import { CollectiveError } from '../../core/errors.js';
import type { RankRuntime } from '../../core/rank-runtime.js';
import { identityOf } from '../../core/unobserved-failures.js';
import type { NativeReason } from '../../native/failure.js';
import { streamDone } from '../engines/native-engine.js';
import { abortReason } from './abort-reason.js';
import { placeText } from './diagnosis/creation-log.js';

/**
 * Waits for the calls of a rank on the CPU, then checks for failures that the program has not
 * observed. Does not wait for GPUs: the stream of a group still has a failure that was observed on
 * another stream.
 *
 * @throws the first unobserved failure
 * @internal
 */
export async function checkExit(runtime: RankRuntime, op: string): Promise<void> {
  const stream = runtime.devices[0]?.currentStream ?? -1;
  if (stream >= 0)
    await streamDone(stream, op).catch((error: unknown) => {
      if (!runtime.reportedFailures.has(identityOf(error)?.id ?? 0)) throw error;
    });
  runtime.unobserved.check();
}

/**
 * Why a rank ends its groups: its error, the ranks to blame, and its last call. Blames the ranks
 * that the error blames, else this rank. @internal
 */
export function exitReason(
  { lastCall: op, lastPlace: where }: RankRuntime,
  rank: number,
  message: string,
  error: unknown,
): NativeReason {
  const blamed = error instanceof CollectiveError ? (error.details.ranks ?? []) : [];
  const called = op === '' ? [] : [{ rank, op, where }];
  const ranks = blamed.length > 0 || op === '' ? blamed : [rank];
  const last = op === '' ? '' : `; its last call was ${op}${placeText(where)}`;
  return { ...abortReason(message + last, error), ranks, calls: called };
}
