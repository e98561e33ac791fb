/** Time that overlapping spans cover. */

/** A part of time, in any unit. */
export interface Span {
  readonly start: number;
  readonly end: number;
}

/** The time in which at least one of the spans lasts. @internal */
export function coveredTime(spans: readonly Span[]): number {
  let [time, until] = [0, Number.NEGATIVE_INFINITY];
  for (const { start, end } of [...spans].sort((a, b) => a.start - b.start)) {
    if (end <= until) continue;
    time += end - Math.max(start, until);
    until = end;
  }
  return time;
}
