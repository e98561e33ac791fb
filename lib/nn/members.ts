/**
 * The named members of a module, in the order in which they came. They are plain properties, and
 * JavaScript lists those whose names are whole numbers before all others; a module in which that is
 * not the order of registration keeps a list of its names.
 */

import { ArgumentError } from '../core/errors.js';
import { shown } from '../core/options.js';

interface Ordered {
  /** Null while JavaScript's order is the right one. */
  memberOrder: string[] | null;
}

/** Names of the properties of a module, in the order in which they came. */
export function memberNames(module: object): string[] {
  const names = Object.keys(module);
  const { memberOrder } = module as Ordered;
  if (memberOrder === null) return names;
  const present = new Set(names);
  const listed = memberOrder.filter((name) => present.delete(name));
  return [...listed, ...present];
}

/** Names and values of the properties of a module, in the order in which they came. */
export function members(module: object): [name: string, value: unknown][] {
  return memberNames(module).map((name) => [name, (module as Record<string, unknown>)[name]]);
}

/**
 * Sets a property; a new one comes after all others, whatever its name. @throws ArgumentError for a
 * name that no member can have
 */
export function setMember(module: object, name: string, value: unknown): void {
  checkName(module, name);
  const before = Object.hasOwn(module, name) ? null : memberNames(module);
  (module as Record<string, unknown>)[name] = value;
  const ordered = module as Ordered;
  if (before !== null && (ordered.memberOrder !== null || Object.keys(module).at(-1) !== name))
    ordered.memberOrder = [...before, name];
}

/** A name for messages, in quotes; what is none as it is. */
export function quoted(name: unknown): string {
  return typeof name === 'string' ? `"${name}"` : shown(name);
}

function checkName(module: object, name: string): void {
  if (typeof name !== 'string' || name === '' || name.includes('.'))
    throw new ArgumentError(
      `a parameter, buffer or module name must not be empty or contain a dot, got ${quoted(name)}`,
      { name },
    );
  if (name in module && !Object.prototype.propertyIsEnumerable.call(module, name))
    throw new ArgumentError(
      `"${name}" is a member of ${module.constructor.name} and cannot name a parameter, buffer or module`,
      { name },
    );
}
