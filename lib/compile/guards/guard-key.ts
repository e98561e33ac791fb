/** The guard key of a call: the modes, and the arguments down to their plain values. */
import { gradMode } from '../../autograd/grad-mode.js';
import { getDefaultDevice } from '../../core/device.js';
import { getDefaultDtype } from '../../core/dtype.js';
import { hooks } from '../../core/hooks.js';
import { listOf } from './object-walk.js';

const identities = new WeakMap<object, number>();
/** Symbols may not be keys of a WeakMap; programs have few. */
const symbols = new Map<symbol, number>();
let nextIdentity = 0;

/** The id of an object, which stays the same while it lives. */
function identityOf(value: object): number {
  let id = identities.get(value);
  if (id === undefined) {
    id = nextIdentity++;
    identities.set(value, id);
  }
  return id;
}

/** Modes that change what a function computes, each as a string. */
const ambient: readonly (() => string)[] = [
  () => (gradMode().enabled ? 'grad' : 'no-grad'),
  () => (gradMode().inference ? 'inference' : ''),
  () => getDefaultDtype().name,
  () => String(getDefaultDevice()),
  () => hooks.autocastState(),
];

/** The current modes. */
export function ambientKey(): string {
  return ambient.map((state) => state()).join();
}

/**
 * The key of the modes and arguments, see {@link Walk.argument}. Equal keys may share a capture.
 */
export function guardKey(args: readonly unknown[]): string {
  return `${ambientKey()}|${listOf((walk) => walk.argument(args))
    .map(token)
    .join()}`;
}

/** A text that is unique to an item: strings are quoted, objects numbered. */
function token(item: unknown): string {
  switch (typeof item) {
    case 'string':
      return JSON.stringify(item);
    case 'bigint':
      return `${item}n`;
    case 'symbol':
      if (!symbols.has(item)) symbols.set(item, symbols.size);
      return `@${symbols.get(item)}`;
    case 'object':
    case 'function':
      return item === null ? 'null' : `#${identityOf(item)}`;
    default:
      return Object.is(item, -0) ? '-0' : String(item);
  }
}
