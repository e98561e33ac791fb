/** The order of a module's members: that in which they were added. JavaScript moves names like "0" to the front of an object. */

const NUMERIC = /^(0|[1-9][0-9]*)$/;

/** For each numeric name, how many other names were there before it. */
export type NumericPlaces = Map<string, number>;

/** Notes where a member comes, before it is added. A member that is replaced keeps its place. */
export function notePlace(module: object, places: NumericPlaces, name: string): void {
  if (!NUMERIC.test(name) || (places.has(name) && Object.hasOwn(module, name))) return;
  places.delete(name);
  places.set(name, Object.keys(module).filter((key) => !NUMERIC.test(key)).length);
}

/** Names and values of the members, in the order in which they were added. */
export function membersOf(module: object, places: NumericPlaces): [string, unknown][] {
  const entries = Object.entries(module);
  if (places.size === 0) return entries;
  const named = entries.filter(([name]) => !places.has(name));
  const numbered = [...places].filter(([name]) => Object.hasOwn(module, name));
  const ordered: [string, unknown][] = [];
  let next = 0;
  for (let before = 0; before <= named.length; before++) {
    for (; next < numbered.length && (numbered[next] as [string, number])[1] <= before; next++) {
      const [name] = numbered[next] as [string, number];
      ordered.push([name, (module as Record<string, unknown>)[name]]);
    }
    if (before < named.length) ordered.push(named[before] as [string, unknown]);
  }
  return ordered;
}

/** What the dictionaries of modules and parameters take: an object, or names with values in an order of their own. */
export type Named<T> = Readonly<Record<string, T>> | Iterable<readonly [string, T]>;

/** Names with values; the numeric names of an object come first, as JavaScript has it. */
export function pairsOf<T>(named: Named<T>): (readonly [string, T])[] {
  return Symbol.iterator in named ? [...(named as Iterable<readonly [string, T]>)] : Object.entries(named as Readonly<Record<string, T>>);
}
