/**
 * The members of a module by name: parameters, buffers and children in order of registration. They
 * are plain properties, and JavaScript lists names that are whole numbers first; a module whose
 * order differs keeps a list of its names. A wrapper has the module that it wraps under an empty
 * name, so that all names below stay as they were.
 */

import { ArgumentError } from '../core/errors.js';
import { shown, unexpected } from '../core/options.js';
import { Tensor } from '../core/tensor.js';
import type { AnyModule } from './module.js';
import { Parameter } from './parameter.js';

interface Ordered {
  /** Null while JavaScript's order is the order of registration. */
  memberOrder: string[] | null;
}

/** Names of the members of a module, in order of registration. */
export function memberNames(module: object): string[] {
  const names = Object.keys(module);
  const { memberOrder } = module as Ordered;
  if (memberOrder === null) return names;
  const present = new Set(names);
  const listed = memberOrder.filter((name) => present.delete(name));
  return [...listed, ...present];
}

/** Names and values of the members of a module, in order of registration. */
export function members(module: object): [name: string, value: unknown][] {
  return memberNames(module).map((name) => [name, valueAt(module, name)]);
}

/**
 * Sets a member; a new one comes last in the order, whatever its name. @throws ArgumentError for a
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

/** @throws ArgumentError if no parameter has this path */
export function parameterAt(root: AnyModule, path: string): Parameter {
  const [owner, name] = ownerOf(root, path);
  const value = valueAt(owner, name);
  if (!(value instanceof Parameter))
    throw new ArgumentError(`getParameter: no parameter at "${path}"`, { path });
  return value;
}

/** @throws ArgumentError if no buffer has this path */
export function bufferAt(root: AnyModule, path: string): Tensor {
  const [owner, name] = ownerOf(root, path);
  const value = valueAt(owner, name);
  if (!owner.bufferNames.has(name) || !(value instanceof Tensor))
    throw new ArgumentError(`getBuffer: no buffer at "${path}"`, { path });
  return value;
}

/** Splits a dotted path into the module and the name of its member. */
function ownerOf(root: AnyModule, path: string): [AnyModule, string] {
  if (typeof path !== 'string')
    throw unexpected('getParameter and getBuffer', 'path', 'a string', path);
  const dot = path.lastIndexOf('.');
  return [root.getSubmodule<AnyModule>(dot < 0 ? '' : path.slice(0, dot)), path.slice(dot + 1)];
}

/** The property of a module that may be a member. */
export function valueAt(module: object, name: string): unknown {
  return (module as Record<string, unknown>)[name];
}

/** A dotted path. The child of a wrapper, whose name is empty, has the path of the wrapper. */
export function joined(prefix: string, name: string): string {
  if (name === '') return prefix;
  return prefix === '' ? name : `${prefix}.${name}`;
}

/** The prefix of the names of a child's members, from that of the parent's. */
export function prefixOf(prefix: string, child: string): string {
  return child === '' ? prefix : `${prefix}${child}.`;
}

/** A name in quotes, for messages; any other value as {@link shown}. */
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
      `"${name}" is a member of ${module.constructor.name} and cannot name a parameter, ` +
        'buffer or module',
      { name },
    );
}
