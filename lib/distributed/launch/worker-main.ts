/**
 * The worker's side of `launch`: runs the function in a process that `launch` started, and reports
 * the result to the launcher.
 */
import { ArgumentError, DistributedError } from '../../core/errors.js';
import { processRuntime } from '../../core/rank-runtime.js';
import { Tensor } from '../../core/tensor.js';
import type { RankFunction } from '../local-ranks/run.js';
import { checkExit } from '../process-group/exit-check.js';
import { contextOf } from '../process-group/rank-context.js';
import { initProcessGroup, setLaunched } from './init-process-group.js';
import { plainError, receivedError, type SentError, sentError } from './serialize-error.js';

const OP = 'launch';

/** The outcome of a call of `launch`. */
export type Outcome = { readonly value: unknown } | { readonly error: unknown };
/** The same, serialized for another process. */
export type SentOutcome = { readonly value: unknown } | { readonly error: SentError };

/** A message from a rank to its launcher. */
export type FunctionReport =
  | { readonly shardwise: 'result'; readonly value: unknown }
  | { readonly shardwise: 'thrown'; readonly error: SentError }
  | { readonly shardwise: 'outcomes?' };

const ownCall = process.env['SHARDWISE_LAUNCH_CALL'] ?? null;
// Deleted so that processes which this one starts do not inherit it.
delete process.env['SHARDWISE_LAUNCH_CALL'];

/** The call of `launch` that this process is a rank of; null in any other process. */
export function launchedCall(): string | null {
  return ownCall;
}

/** Runs the function as this process's rank, then exits. */
export async function runLaunchedFunction<T>(fn: RankFunction<T>): Promise<never> {
  try {
    await initProcessGroup();
    setLaunched();
    const { rank, worldSize } = contextOf(OP);
    const value = await fn(rank, worldSize);
    refuseTensors(value, rank);
    await checkExit(processRuntime, OP);
    await send({ shardwise: 'result', value });
  } catch (error) {
    const sent = sentError(error);
    process.send?.({
      shardwise: 'failed',
      at: performance.timeOrigin + performance.now(),
      message: sent.message,
    });
    await send({ shardwise: 'thrown', error: sent }).catch(() =>
      send({ shardwise: 'thrown', error: plainError(sent) }),
    );
    process.exit(process.exitCode === undefined || process.exitCode === 0 ? 1 : process.exitCode);
  }
  process.exit();
}

/** The outcome that an earlier call of `launch` had in the parent process. */
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
  // The call runs at the same time as the call of this rank; the rank does not wait for it.
  if (outcome === undefined || outcome === null) return new Promise(() => {});
  if ('error' in outcome) throw receivedError(outcome.error);
  return outcome.value;
}

/** The error that a rank's function threw; undefined without one. */
export function thrownBy(report: FunctionReport | undefined): unknown {
  if (report?.shardwise !== 'thrown') return undefined;
  return receivedError(report.error);
}

function send(report: FunctionReport): Promise<void> {
  if (process.send === undefined)
    throw new DistributedError(
      `${OP}: this process has no launcher; SHARDWISE_LAUNCH_CALL must not be set by hand`,
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
    `${OP}: rank ${rank} returned a tensor, which cannot leave its process. Return t.tolist() or ` +
      'await t.read() instead.',
    { op: OP, rank },
  );
}
