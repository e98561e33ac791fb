/**
 * The end of a rank: what it has called is done, and has not failed unheard; or the others hear
 * why, and what it has called last.
 */
import { CollectiveError } from '../../core/errors.js';
import type { RankRuntime } from '../../core/rank-runtime.js';
import { factsOf } from '../../eager/collective-failure.js';
import { streamDone } from '../engines/native-engine.js';
import { placeText } from './creation-log.js';

/**
 * What a rank has called on the CPU is done when it ends. GPUs are not asked: the stream of a group
 * still has a failure that was heard of on another one.
 *
 * @throws the failure of what nobody has read or asked for
 * @internal
 */
export async function lastFailures(runtime: RankRuntime, op: string): Promise<void> {
  const stream = runtime.devices[0]?.currentStream ?? -1;
  const isTold = (error: unknown): boolean =>
    runtime.told.some((words) => (error as Error).message.includes(words));
  if (stream >= 0)
    await streamDone(stream, op).catch((error: unknown) => {
      if (!isTold(error)) throw error;
    });
  runtime.unheard.check();
}

/**
 * Why a rank ends its groups, for the others: an error of its own, or one that names those which it
 * waited for. @internal
 */
export function withLastCall(
  { lastCall: op, lastPlace: where }: RankRuntime,
  rank: number,
  reason: string,
  error: unknown,
): string {
  const blamed = error instanceof CollectiveError ? (error.details.ranks ?? []) : [];
  const ranks = blamed.length > 0 ? blamed : [rank];
  if (op === '') return blamed.length > 0 ? reason + factsOf({ ranks, calls: [] }) : reason;
  return `${reason}; its last call was ${op}${placeText(where)}${factsOf({ ranks, calls: [{ rank, op, where }] })}`;
}
