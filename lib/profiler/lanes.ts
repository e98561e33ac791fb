/** Slices of a thread must lie inside of each other or apart. */

interface Span {
  readonly start: number;
  readonly end: number;
}

/** Whether each of the others lies inside of the span, around it, or apart from it. */
export function nested(span: Span, others: readonly Span[]): boolean {
  return others.every(
    ({ start, end }) =>
      end <= span.start ||
      start >= span.end ||
      (start >= span.start && end <= span.end) ||
      (start <= span.start && end >= span.end),
  );
}

/**
 * A lane for each span, from 0: functions that await overlap others of their thread. The spans are
 * in the order of their starts.
 */
export function laneOf<T extends Span>(
  spans: readonly T[],
  threadOf: (span: T) => number,
): Map<T, number> {
  const lanes = new Map<T, number>();
  /** By thread and lane, the ends of the spans that are open, the innermost last. */
  const open = new Map<number, number[][]>();
  for (const span of spans) {
    const thread = threadOf(span);
    const stacks = open.get(thread) ?? [];
    open.set(thread, stacks);
    let lane = 0;
    while (!fits(span, (stacks[lane] ??= []))) lane++;
    stacks[lane]?.push(span.end);
    lanes.set(span, lane);
  }
  return lanes;
}

function fits({ start, end }: Span, stack: number[]): boolean {
  while (stack.length > 0 && (stack.at(-1) as number) <= start) stack.pop();
  return stack.length === 0 || (stack.at(-1) as number) >= end;
}
