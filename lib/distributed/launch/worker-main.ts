/**
 * The side of `launch` in a process that it made for a function: run it, and tell what came of it.
 */
import { ArgumentError, DistributedError } from '../../core/errors.js';
import { processHome } from '../../core/home.js';
import { Tensor } from '../../core/tensor.js';
import type { RankFunction } from '../local-ranks/run.js';
import { lastFailures } from '../process-group/exit-check.js';
import { contextOf } from '../process-group/rank-context.js';
import { initProcessGroup, setLaunched } from './init-process-group.js';
import { plainError, receivedError, type SentError, sentError } from './serialize-error.js';

const OP = 'launch';

/** What came of a call of `launch`. */
export type Outcome = { readonly value: unknown } | { readonly error: unknown };
/** The same on its way to another process. */
export type SentOutcome = { readonly value: unknown } | { readonly error: SentError };

/** What a rank tells its launcher. */
export type FunctionReport =
  | { readonly shardwise: 'result'; readonly value: unknown }
  | { readonly shardwise: 'thrown'; readonly error: SentError }
  | { readonly shardwise: 'outcomes?' };

const ownCall = process.env['SHARDWISE_LAUNCH_CALL'] ?? null;
// Not for processes that this one starts.
delete process.env['SHARDWISE_LAUNCH_CALL'];

/** The call of `launch` that this process is a rank of; null in any other process. */
export function launchedCall(): string | null {
  return ownCall;
}

/** Runs the function as the rank that this process is; the process ends with it. */
export async function runLaunchedFunction<T>(fn: RankFunction<T>): Promise<never> {
  try {
    await initProcessGroup();
    setLaunched();
    const { rank, worldSize } = contextOf(OP);
    const value = await fn(rank, worldSize);
    refuseTensors(value, rank);
    await lastFailures(processHome, OP);
    await tell({ shardwise: 'result', value });
  } catch (error) {
    const sent = sentError(error);
    process.send?.({
      shardwise: 'failed',
      at: performance.timeOrigin + performance.now(),
      message: sent.message,
    });
    await tell({ shardwise: 'thrown', error: sent }).catch(() =>
      tell({ shardwise: 'thrown', error: plainError(sent) }),
    );
    process.exit(process.exitCode === undefined || process.exitCode === 0 ? 1 : process.exitCode);
  }
  process.exit();
}

/** What came of a call of `launch` in the process that made this one, before it made this one. */
export async function earlierOutcome(call: number): Promise<unknown> {
  const outcomes = await new Promise<(SentOutcome | null)[]>((resolve) => {
    process.on('message', function receive(message: { shardwise?: unknown; outcomes?: unknown }) {
      if (message.shardwise !== 'outcomes') return;
      process.removeListener('message', receive);
      process.channel?.unref();
      resolve(message.outcomes as (SentOutcome | null)[]);
    });
    process.channel?.ref();
    process.send?.({ shardwise: 'outcomes?' });
  });
  const outcome = outcomes[call];
  // Under way at the same time as the call that this process is a rank of: it is not waited for
  // here.
  if (outcome === undefined || outcome === null) return new Promise(() => {});
  if ('error' in outcome) throw receivedError(outcome.error);
  return outcome.value;
}

/** What a rank's function has thrown; undefined where it has not come that far. */
export function thrownBy(report: FunctionReport | undefined): unknown {
  if (report?.shardwise !== 'thrown') return undefined;
  return receivedError(report.error);
}

function tell(report: FunctionReport): Promise<void> {
  const { send } = process;
  if (send === undefined)
    throw new DistributedError(
      `${OP}: this process is no rank of a launch any more, or SHARDWISE_LAUNCH_CALL was set by hand`,
      { op: OP },
    );
  return new Promise((resolve, reject) => {
    process.send?.(report, undefined, undefined, (error) => (error ? reject(error) : resolve()));
  });
}

function refuseTensors(value: unknown, rank: number): void {
  const inside = Array.isArray(value)
    ? value
    : typeof value === 'object' && value !== null
      ? [value, ...Object.values(value)]
      : [value];
  if (!inside.some((each) => each instanceof Tensor)) return;
  throw new ArgumentError(
    `${OP}: rank ${rank} returned a tensor, which stays in its process. Return t.tolist() or what t.read() gives.`,
    { op: OP, rank },
  );
}
