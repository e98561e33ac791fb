/** Communication in the trace of a step, ours or PyTorch's: all of it, and what nothing hides. */
import { readFileSync } from 'node:fs';

interface Slice {
  readonly ph: string;
  readonly name: string;
  readonly cat?: string;
  readonly ts: number;
  readonly dur?: number;
  readonly args?: { readonly device?: unknown };
}

interface Trace {
  readonly traceEvents: readonly Slice[];
}

export interface Communication {
  /** Time in which GPUs communicate. */
  readonly communicationMs: number;
  /** Time in which GPUs communicate and compute nothing. */
  readonly exposedMs: number;
}

type Span = readonly [begin: number, end: number];

const COMPUTING = new Set(['kernel', 'gpu_memcpy', 'gpu_memset']);

const isCommunication = ({ cat, name }: Slice): boolean =>
  cat === 'collective' || (cat === 'kernel' && /nccl|peer_all_reduce/i.test(name));

/** Spans in order, with those that touch joined. */
function joined(slices: readonly Slice[]): Span[] {
  const sorted = slices.map(({ ts, dur = 0 }): Span => [ts, ts + dur]).sort(([a], [b]) => a - b);
  const spans: [number, number][] = [];
  for (const [begin, end] of sorted) {
    const last = spans.at(-1);
    if (last !== undefined && begin <= last[1]) last[1] = Math.max(last[1], end);
    else spans.push([begin, end]);
  }
  return spans;
}

const lengthOf = (spans: readonly Span[]): number =>
  spans.reduce((sum, [begin, end]) => sum + end - begin, 0);

/** The time of both at once. */
function common(a: readonly Span[], b: readonly Span[]): number {
  let sum = 0;
  let [i, j] = [0, 0];
  while (i < a.length && j < b.length) {
    const [[begin, end], [other, otherEnd]] = [a[i], b[j]] as [Span, Span];
    sum += Math.max(0, Math.min(end, otherEnd) - Math.max(begin, other));
    if (end < otherEnd) i++;
    else j++;
  }
  return sum;
}

export function communicationOf({ traceEvents }: Trace): Communication {
  const onGpus = traceEvents.filter(({ ph, args }) => ph === 'X' && args?.device !== 'cpu');
  const communicating = joined(onGpus.filter(isCommunication));
  const computing = joined(
    onGpus.filter((slice) => COMPUTING.has(slice.cat ?? '') && !isCommunication(slice)),
  );
  const all = lengthOf(communicating);
  return {
    communicationMs: all / 1e3,
    exposedMs: (all - common(communicating, computing)) / 1e3,
  };
}

export const communicationIn = (file: string): Communication =>
  communicationOf(JSON.parse(readFileSync(file, 'utf8')) as Trace);
