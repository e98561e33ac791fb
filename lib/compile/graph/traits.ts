/** Properties of nodes that passes select by, instead of by the names of ops. */
import type { Trait } from '../../core/op.js';
import { type EffectName, effectOf } from './effects.js';
import type { Node } from './node.js';

/** Whether the node changes memory that it did not allocate. */
export function writes(node: Node): boolean {
  if (node.kind === 'effect') return !effectOf(node.effect as NonNullable<Node['effect']>).pure;
  return node.into !== null || (node.op !== null && node.op.mutates !== null);
}

/** Whether the node does something beside its values, so that no other may pass it. */
export function isOrderedEffect({ kind, effect }: Node): boolean {
  return kind === 'effect' && effect !== 'draw' && !effectOf(effect as EffectName).pure;
}

/** Whether other ranks take part in the call. */
export function communicates({ op }: Node): boolean {
  if (op === null || op.traits.includes('wait') || op.traits.includes('frees')) return false;
  return op.traits.some((trait) => COMMUNICATING.has(trait));
}

const COMMUNICATING: ReadonlySet<Trait> = new Set(['collective', 'placement', 'communicates']);

/** Whether the node begins communication, which ends with the wait for its result. */
export function startsCommunication(node: Node): boolean {
  return communicates(node) && !isWait(node);
}

/** Whether the node is a collective of the library, and not the wait for one. */
export function isCollective(node: Node): boolean {
  return (node.op?.traits.includes('collective') ?? false) && !isWait(node);
}

/** Whether the node draws random numbers. */
export function isRandom(node: Node): boolean {
  return node.draw !== null || node.effect === 'draw';
}

/** Whether the call returns another window on the memory of its first input. */
export function isView(node: Node): boolean {
  return node.op !== null && node.op.view !== null && node.into === null;
}

/** Whether the call returns the result of a collective, or an input that is one, as ready. */
export function isWait(node: Node): boolean {
  return node.op?.traits.includes('wait') ?? false;
}

/** Whether the call computes by the expression of a pointwise op, or converts its operand. */
export function isElementwise({ op }: Node): boolean {
  return op !== null && (op.pointwise !== null || op.traits.includes('converts'));
}

/** Whether the node must stay although nothing uses its values. */
export function mustStay(node: Node): boolean {
  return (
    node.kind === 'placeholder' ||
    writes(node) ||
    communicates(node) ||
    node.effect === 'draw' ||
    (node.op !== null && node.op.compute !== null)
  );
}
