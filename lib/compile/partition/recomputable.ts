/**
 * Which nodes of forward backward may compute again, by properties of their ops: those that would
 * give another value never, those that take long only if a tag says so.
 */
import type { Node, ValueMeta } from '../graph/node.js';
import { communicates, isRandom, isView, writes } from '../graph/traits.js';
import { bytesOf, isAlias, type Memory } from './memory.js';
import { isResharded, regionOf } from './tags.js';

const SAVE = 'mustSave';

/**
 * Whether the node, run again in backward, may give another value or repeat an effect. @internal
 */
export function isUnrepeatable(node: Node, memory: Memory): boolean {
  const { op, kind } = node;
  if (kind !== 'call' || op === null || writes(node) || isAlias(node)) return true;
  if (op.traits.includes('uninitialized') || !memory.readsUnchanged(node)) return true;
  // An in-place change of a result belongs to no node that would be run again.
  return node.metas.some((_, output) => memory.writes({ node, output }) > 0);
}

/**
 * Whether running the node again takes long or saves little: products and their like, code of the
 * program, communication, copies between devices, and results much smaller than the operands.
 *
 * @internal
 */
export function isCostly(node: Node): boolean {
  const { op, metas } = node;
  if (op === null || op.compute !== null || op.traits.includes('compute-bound')) return true;
  if (communicates(node)) return true;
  const operands = operandsOf(node);
  const device = metas[0]?.device;
  if (device !== undefined && operands.some((meta) => String(meta.device) !== String(device)))
    return true;
  return bytesOfAll(metas) * 4 < bytesOfAll(operands);
}

/**
 * Whether backward must compute the node again: `mustRecompute`, or for collectives
 * `reshardAfterForward`. Of two regions `mustRecompute:a` and `mustRecompute:b`, the second gets
 * what it reads of the first as a saved value.
 *
 * @internal
 */
export function isRecomputed(node: Node, users: readonly Node[]): boolean {
  if (communicates(node) && isResharded(node)) return true;
  const region = regionOf(node);
  if (region === undefined || node.tags.has(SAVE)) return false;
  return users.every((user) => (regionOf(user) ?? region) === region);
}

/** Whether a value of the node is saved wherever backward reads it. @internal */
export function isSaved(node: Node): boolean {
  return node.tags.has(SAVE) || regionOf(node) !== undefined;
}

/** Whether a compiler can compute the node in the same pass over memory as others. @internal */
export function isFusible(node: Node): boolean {
  const { op, inputs } = node;
  if (op === null || op.compute !== null) return false;
  return op.traits.includes('pointwise') || isView(node) || isRandom(node) || inputs.length === 0;
}

function operandsOf({ inputs }: Node): ValueMeta[] {
  return inputs.flatMap((value) => {
    const meta = 'number' in value ? undefined : value.node.metas[value.output];
    return meta === undefined ? [] : [meta];
  });
}

function bytesOfAll(metas: readonly ValueMeta[]): number {
  return metas.reduce((sum, meta) => sum + bytesOf(meta), 0);
}
