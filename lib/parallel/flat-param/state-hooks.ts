/** State dicts of wrappers: whole parameters under the names of the wrapped module. */
import type { nn } from '../../index.js';
import type { FlatUnit } from './flat-unit.js';

/** The property of a wrapper that holds the wrapped module. */
export const WRAPPED = '_fsdp_wrapped_module';

const PREFIX = `${WRAPPED}.`;

/** A dotted name as it is without wrappers. */
export function withoutPrefix(name: string): string {
  return name.replaceAll(PREFIX, '');
}

/**
 * Saving and loading gathers the parameters of each wrapper, so all ranks save and load together.
 * Tensors of a state are whole, and names have no prefix of a wrapper.
 */
export function addStateHooks(wrapper: nn.AnyModule, unit: FlatUnit): void {
  // In summonFullParams the whole parameters are there, and stay.
  let isOwner = false;
  wrapper.registerStateDictPreHook(() => {
    isOwner = unit.summon('stateDict');
  });
  wrapper.registerStateDictHook((_, state, prefix) => {
    if (isOwner) unit.leaveWhole();
    rename(state, prefix + PREFIX, prefix);
  });
  wrapper.registerLoadStateDictPreHook((_, state, prefix) => {
    rename(state, prefix, prefix + PREFIX);
    isOwner = unit.summon('loadStateDict');
  });
  wrapper.registerLoadStateDictPostHook((_, { missingKeys, unexpectedKeys }) => {
    if (isOwner) unit.endSummon(true);
    for (const names of [missingKeys, unexpectedKeys])
      names.splice(0, names.length, ...names.map(withoutPrefix));
  });
}

/** Gives all names that begin with `from` the prefix `to` in its place, in the same order. */
function rename<T>(state: Record<string, T>, from: string, to: string): void {
  const entries = Object.entries(state);
  for (const [name] of entries) delete state[name];
  for (const [name, value] of entries)
    state[name.startsWith(from) ? to + name.slice(from.length) : name] = value;
}
