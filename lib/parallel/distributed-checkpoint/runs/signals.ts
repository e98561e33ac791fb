/**
 * SIGINT and SIGTERM as a request to stop at the end of a step. A second one ends the process as it
 * would without this.
 */
import { constants } from 'node:os';

/** The signals that ask a run to stop; their order is that of {@link signalNumber}. */
const stopSignals = ['SIGINT', 'SIGTERM'] as const;
export type StopSignal = (typeof stopSignals)[number];

/**
 * A terminal signals a launcher and its ranks, and the launcher passes it on: that is one signal.
 */
const SAME_SIGNAL_MS = 1_000;

let watchers = 0;
let received: { readonly signal: StopSignal; readonly at: number } | null = null;
const onFirst = new Set<(signal: StopSignal) => void>();

function receive(signal: NodeJS.Signals): void {
  if (received === null) {
    received = { signal: signal as StopSignal, at: performance.now() };
    for (const report of onFirst) report(received.signal);
  } else if (performance.now() - received.at > SAME_SIGNAL_MS) endBy(signal as StopSignal);
}

/** Begins to watch; `report` is called at the first signal. Returns a function that ends it. */
export function watchSignals(report: (signal: StopSignal) => void): () => void {
  if (watchers++ === 0) {
    for (const signal of stopSignals) process.on(signal, receive);
    // The launcher then gives the ranks the time that a save takes.
    if (process.env['SHARDWISE_LAUNCHER_PID'] === String(process.ppid))
      process.send?.({ shardwise: 'saves on signals' });
  }
  onFirst.add(report);
  let isOver = false;
  return () => {
    if (isOver) return;
    isOver = true;
    onFirst.delete(report);
    if (--watchers === 0) unwatch();
  };
}

function unwatch(): void {
  for (const signal of stopSignals) process.removeListener(signal, receive);
  received = null;
}

/** A number for ranks to agree on: 0 without a signal. */
export function signalNumber(): number {
  return received === null ? 0 : stopSignals.indexOf(received.signal) + 1;
}

/** The signal of a number; null for 0. */
export function signalOf(number: number): StopSignal | null {
  return stopSignals[number - 1] ?? null;
}

/** Ends this process as the signal does. */
export function endBy(signal: StopSignal): void {
  unwatch();
  if (process.listenerCount(signal) === 0) process.kill(process.pid, signal);
  else process.exit(128 + constants.signals[signal]);
}
