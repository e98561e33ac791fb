/** The path of a module that runs, for reports. */

/** The part of nn.Module that is used here; nn is above this layer. */
interface NamedModules {
  namedModules(): Iterable<readonly [path: string, module: object]>;
}

/**
 * The path of the innermost of these running modules in the outermost one, or the class of the
 * outermost one; null if there is none. @internal
 */
export function modulePath(calls: readonly object[]): string | null {
  const [outer, inner] = [calls[0] as (object & NamedModules) | undefined, calls.at(-1)];
  if (outer === undefined) return null;
  for (const [path, module] of outer.namedModules())
    if (module === inner) return path === '' ? outer.constructor.name : path;
  return (inner as object).constructor.name;
}
