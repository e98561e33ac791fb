/** The parameters of a group by their dtype: a flat tensor has one. */
import type { ShardedParameter } from './sharded-parameter.js';

/** What the parameters of one dtype have in common. */
interface Part<T> {
  /** Their places among the parameters of the group. */
  readonly places: readonly number[];
  readonly value: T;
}

export class ByDtype<T> {
  private readonly parts: readonly Part<T>[];

  /** Dtypes are in the order in which parameters have them, which is that of all ranks. */
  constructor(
    parameters: readonly ShardedParameter[],
    make: (parameters: readonly ShardedParameter[]) => T,
  ) {
    const places = new Map<string, number[]>();
    for (const [i, { parameter }] of parameters.entries()) {
      const { name } = parameter.dtype;
      const known = places.get(name);
      if (known === undefined) places.set(name, [i]);
      else known.push(i);
    }
    this.parts = [...places.values()].map((list) => ({
      places: list,
      value: make(pick(parameters, list)),
    }));
  }

  get values(): readonly T[] {
    return this.parts.map(({ value }) => value);
  }

  /** What `fn` returns for the parameters of each dtype, in the order of all. */
  join<R>(fn: (value: T, places: readonly number[]) => readonly R[]): R[] {
    const all: R[] = [];
    for (const { value, places } of this.parts)
      for (const [i, result] of fn(value, places).entries()) all[places[i] as number] = result;
    return all;
  }
}

/** The values at some places. */
export const pick = <V>(values: readonly V[], places: readonly number[]): V[] =>
  places.map((place) => values[place] as V);
