/** Collects and loads the states of modules. */
import { noGrad } from '../autograd/grad-mode.js';
import { CheckpointError } from '../core/errors.js';
import { checkFlag, unexpected } from '../core/options.js';
import { formatShape, sameShape } from '../core/shape.js';
import { defineArguments } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { requireTensor } from '../ops/operand.js';
import { members, valueAt } from './members.js';
import type { AnyModule } from './module.js';
import { Parameter } from './parameter.js';

/**
 * Tensors by dotted name, in the order of the module tree. As in any object, names that are whole
 * numbers come first.
 */
export type StateDict = Record<string, Tensor>;

/** The result of `loadStateDict`: names that did not match. */
export interface LoadResult {
  /** Names of the module that the state does not have. */
  missingKeys: string[];
  /** Names of the state that the module does not have. */
  unexpectedKeys: string[];
}

/** Parameters and persistent buffers. A shared one appears under each of its names. */
function* stateEntries(root: AnyModule): Generator<[string, Tensor]> {
  const walk = function* (module: AnyModule, prefix: string): Generator<[string, Tensor]> {
    for (const [name, value] of members(module))
      if (value instanceof Parameter) yield [prefix + name, value];
    for (const [name, persistent] of module.bufferNames) {
      const value = valueAt(module, name) as Tensor | null;
      if (persistent && value) yield [prefix + name, value];
    }
    for (const [name, child] of module.namedChildren()) yield* walk(child, `${prefix}${name}.`);
  };
  yield* walk(root, '');
}

/** Options of {@link Module.stateDict}. */
export interface StateDictOptions {
  /** Prefix of every name. */
  prefix?: string;
  /** Return the parameters themselves instead of detached tensors on their memory. */
  keepVars?: boolean;
}

/** The arguments of `loadStateDict` after the state. @internal */
export const strictArguments = defineArguments(
  'loadStateDict(strict)',
  (strict = true): boolean => {
    checkFlag('loadStateDict', 'strict', strict);
    return strict;
  },
);

export function collectState(module: AnyModule, prefix: string, keepVars: boolean): StateDict {
  const state: StateDict = {};
  for (const [name, t] of stateEntries(module)) state[prefix + name] = keepVars ? t : t.detach();
  return state;
}

const listed = (names: readonly string[], tensors: ReadonlyMap<string, Tensor>): string =>
  names.map((n) => `${n} ${formatShape((tensors.get(n) as Tensor).shape)}`).join(', ');

/**
 * Converts a plain tensor to a distributed one, or back, to match the module. Every rank must load
 * the same state.
 */
function shardedLike(t: Tensor, source: Tensor): Tensor {
  if (t.sharding === null)
    return source.sharding === null ? source : source.sharding.full('loadStateDict');
  return source.sharding === null ? t.sharding.replicated(source.detach()) : source;
}

export function loadState(
  module: AnyModule,
  given: StateDict | ReadonlyMap<string, Tensor>,
  strict: boolean,
): LoadResult {
  if (typeof given !== 'object' || given === null)
    throw unexpected('loadStateDict', 'state', 'an object or a map of tensors by name', given);
  const state =
    given instanceof Map ? (given as ReadonlyMap<string, Tensor>) : new Map(Object.entries(given));
  for (const [name, t] of state) requireTensor(t, 'loadStateDict', String(name));
  const own = new Map(stateEntries(module));
  const missingKeys = [...own.keys()].filter((k) => !state.has(k));
  const unexpectedKeys = [...state.keys()].filter((k) => !own.has(k));
  const problems: string[] = [];
  if (strict && missingKeys.length) problems.push(`missing: ${listed(missingKeys, own)}`);
  if (strict && unexpectedKeys.length)
    problems.push(`unexpected: ${listed(unexpectedKeys, state)}`);
  for (const [name, t] of own) {
    const source = state.get(name);
    if (source && !sameShape(source.shape, t.shape))
      problems.push(
        `${name}: the checkpoint has shape ${formatShape(source.shape)}, the module ` +
          `${formatShape(t.shape)}`,
      );
  }
  if (problems.length) {
    const kind = Object.getPrototypeOf(module).constructor.name as string;
    throw new CheckpointError(
      `loadStateDict: the state does not fit ${kind}:\n  ${problems.join('\n  ')}`,
      { missingKeys, unexpectedKeys },
    );
  }
  noGrad(() => {
    for (const [name, t] of own) {
      const source = state.get(name);
      if (source) t.copy_(shardedLike(t, source));
    }
  });
  return { missingKeys, unexpectedKeys };
}
