/** Checks of traces in Chrome's form. */
import assert from 'node:assert/strict';
import type { profiler } from '../../../lib/index.js';

type TraceEvent = profiler.TraceEvent;
type Trace = profiler.ChromeTrace;

/** Times are sums and differences of fractions of microseconds. */
const ROUNDING = 1e-2;

const endOf = ({ ts, dur = 0 }: TraceEvent): number => ts + dur;
const placeOf = ({ pid, tid }: TraceEvent): string => `${pid} ${tid}`;

/** The slices, of a category if one is given. */
export const slicesOf = ({ traceEvents }: Trace, cat?: string): TraceEvent[] =>
  traceEvents.filter((each) => each.ph === 'X' && (cat === undefined || each.cat === cat));

/** The names of threads, by process and thread. */
export const threadNames = ({ traceEvents }: Trace): Map<string, unknown> =>
  new Map(
    traceEvents
      .filter(({ ph, name }) => ph === 'M' && name === 'thread_name')
      .map((each) => [placeOf(each), each.args?.['name']]),
  );

/** The innermost slice of a thread around a time. */
function sliceAt(trace: Trace, { ts, ...place }: TraceEvent): TraceEvent {
  const around = slicesOf(trace)
    .filter((each) => placeOf(each) === placeOf({ ts, ...place }))
    .filter((each) => each.ts <= ts + ROUNDING && endOf(each) >= ts - ROUNDING)
    .filter(({ cat }) => cat !== 'compiled' || place.ph === 's');
  return (
    around.sort((a, b) => Math.abs(a.ts - ts) - Math.abs(b.ts - ts))[0] ??
    assert.fail(`no slice around the ${place.ph} of flow ${place.id}`)
  );
}

/** The slices at both ends of each flow. */
export function flowsOf(trace: Trace): { readonly from: TraceEvent; readonly to: TraceEvent }[] {
  const ends = new Map(
    trace.traceEvents.filter(({ ph }) => ph === 'f').map((each) => [each.id, each]),
  );
  const starts = trace.traceEvents.filter(({ ph }) => ph === 's');
  assert.equal(starts.length, ends.size, 'each flow has both ends');
  return starts.map((start) => {
    const end = ends.get(start.id) ?? assert.fail(`flow ${start.id} has no end`);
    assert.equal(end.bp, 'e');
    return { from: sliceAt(trace, start), to: sliceAt(trace, end) };
  });
}

/** Checks the fields of all entries, that slices of a thread are nested, and that threads have names. */
export function checkTrace(trace: Trace): void {
  assert.equal(trace.displayTimeUnit, 'ms');
  const names = threadNames(trace);
  const processes = new Set(
    trace.traceEvents.filter(({ name }) => name === 'process_name').map(({ pid }) => pid),
  );
  for (const each of trace.traceEvents) {
    assert.ok(['X', 's', 'f', 'C', 'M'].includes(each.ph));
    assert.equal(typeof each.name, 'string');
    for (const number of [each.pid, each.tid]) assert.ok(Number.isSafeInteger(number));
    assert.ok(Number.isFinite(each.ts) && each.ts >= 0);
    assert.ok(processes.has(each.pid), `process ${each.pid} has a name`);
    if (each.ph !== 'X') continue;
    assert.ok(Number.isFinite(each.dur) && (each.dur as number) >= 0);
    assert.ok(names.has(placeOf(each)), `thread ${placeOf(each)} has a name`);
  }
  const open = new Map<string, TraceEvent[]>();
  const slices = slicesOf(trace).sort((a, b) => a.ts - b.ts || endOf(b) - endOf(a));
  for (const slice of slices) {
    const stack = open.get(placeOf(slice)) ?? [];
    open.set(placeOf(slice), stack);
    while (stack.length > 0 && endOf(stack.at(-1) as TraceEvent) <= slice.ts + ROUNDING)
      stack.pop();
    const around = stack.at(-1);
    if (around !== undefined)
      assert.ok(
        endOf(slice) <= endOf(around) + ROUNDING,
        `${slice.name} ends after ${around.name}, in which it starts`,
      );
    stack.push(slice);
  }
  flowsOf(trace);
}
