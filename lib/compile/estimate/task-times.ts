/** When tasks run: kernels in order on one stream, collectives in order on another. */
import type { Task } from './tasks.js';

/** A task, in seconds from the start of the first one. */
export interface TaskTime {
  readonly task: Task;
  readonly start: number;
  readonly end: number;
  /** How long the stream that computes has waited for collectives before it. */
  readonly waited: number;
}

/**
 * The times of tasks in their order. A collective starts when all kernels before it, and the
 * collective before it, have ended; a kernel when the collectives that it waits for have.
 */
export function taskTimes(tasks: Iterable<Task>): TaskTime[] {
  const ends = new Map<Task, number>();
  const times: TaskTime[] = [];
  let [computed, communicated] = [0, 0];
  for (const task of tasks) {
    let ready = 0;
    for (const other of task.waitsFor) ready = Math.max(ready, ends.get(other) ?? 0);
    const isCompute = task.lane === 'compute';
    const start = Math.max(computed, ready, isCompute ? 0 : communicated);
    const end = start + task.seconds;
    times.push({ task, start, end, waited: isCompute ? start - computed : 0 });
    if (isCompute) computed = end;
    else {
      communicated = end;
      ends.set(task, end);
    }
  }
  return times;
}
