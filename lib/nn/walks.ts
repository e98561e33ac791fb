/** The walks over a module and what is below it. */
import { markLibraryGenerator } from '../core/library-generators.js';
import { optionsOf, unexpected } from '../core/options.js';
import { Tensor } from '../core/tensor.js';
import { joined, members, valueAt } from './members.js';
import type { AnyModule } from './module.js';
import { Parameter } from './parameter.js';
import { warnOfArrays } from './unregistered.js';

/** Options of the walks over parameters and buffers. */
export interface WalkOptions {
  /** Include the modules below. */
  recurse?: boolean;
}

/** What a module walks over, as often as it is asked: each walk sees the module as it is then. */
export function walk<T>(values: () => Iterator<T>): Iterable<T> {
  return { [Symbol.iterator]: values };
}

/** A module and all below, each once, with dotted names. */
export function* walkModules(
  module: AnyModule,
  prefix: string,
  seen: Set<AnyModule> = new Set(),
): Generator<[string, AnyModule]> {
  if (typeof prefix !== 'string') throw unexpected('namedModules', 'prefix', 'a string', prefix);
  if (!(seen instanceof Set)) throw unexpected('namedModules', 'seen', 'a set of modules', seen);
  if (seen.has(module)) return;
  seen.add(module);
  yield [prefix, module];
  for (const [name, child] of module.namedChildren())
    yield* child.namedModules(joined(prefix, name), seen);
}

/** The values of pairs. */
export function* seconds<T>(pairs: Iterable<readonly [string, T]>): Generator<T> {
  for (const [, value] of pairs) yield value;
}

/** The parameters of a module with dotted names, each once unless `removeDuplicate` is false. */
export function* walkParameters(
  root: AnyModule,
  prefix: string,
  options: WalkOptions & { removeDuplicate?: boolean },
): Generator<[string, Parameter]> {
  const { recurse = true, removeDuplicate = true } = optionsOf(
    'namedParameters',
    options,
    'recurse removeDuplicate',
  );
  const seen = new Set<Tensor>();
  for (const [path, module] of recurse ? root.namedModules(prefix) : [[prefix, root] as const]) {
    for (const [name, value] of members(module)) {
      if (!(value instanceof Parameter) || (removeDuplicate && seen.has(value))) continue;
      seen.add(value);
      yield [joined(path, name), value];
    }
    warnOfArrays(module);
  }
}

/** The buffers of a module with dotted names, each once. */
export function* walkBuffers(
  root: AnyModule,
  prefix: string,
  options: WalkOptions,
): Generator<[string, Tensor]> {
  const { recurse = true } = optionsOf('namedBuffers', options, 'recurse');
  const seen = new Set<Tensor>();
  for (const [path, module] of recurse ? root.namedModules(prefix) : [[prefix, root] as const]) {
    for (const name of module.bufferNames.keys()) {
      const value = valueAt(module, name);
      if (!(value instanceof Tensor) || seen.has(value)) continue;
      seen.add(value);
      yield [joined(path, name), value];
    }
  }
}

for (const walking of [walkModules, seconds, walkParameters, walkBuffers])
  markLibraryGenerator(walking);
