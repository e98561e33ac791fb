/** The state of schedules: what a program writes down to go on later. */

/** Position and settings of a schedule: numbers, strings and lists of them. */
export type SchedulerState = Record<string, unknown>;

/** The own properties of a schedule that are values: no optimizer, no functions. @internal */
export function stateOf(schedule: object): SchedulerState {
  const isFunction = (value: unknown): boolean => typeof value === 'function' || (Array.isArray(value) && value.some(isFunction));
  return structuredClone(Object.fromEntries(Object.entries(schedule).filter(([key, value]) => key !== 'optimizer' && !isFunction(value))));
}
