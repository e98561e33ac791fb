/**
 * Arrays of sizes and strides as programs get them: frozen, so that no program changes the arrays of
 * tensors, which many tensors share. The library has plain arrays, because all that JavaScript does
 * with frozen ones is slow: a copy takes 500 ns, that of a plain one 20.
 */
import { type Shape, sameShape } from './shape.js';

const SLOTS = 4096;
const table: Shape[] = new Array<Shape>(SLOTS).fill(Object.freeze([]));

/** A frozen array of these numbers, as a rule the same for the same numbers. */
export function frozenSizes(sizes: Shape): Shape {
  let hash = sizes.length;
  for (let i = 0; i < sizes.length; i++) hash = (Math.imul(hash, 31) + (sizes[i] as number)) | 0;
  const slot = (hash ^ (hash >>> 12)) & (SLOTS - 1);
  const known = table[slot] as Shape;
  if (sameShape(known, sizes)) return known;
  const made = Object.freeze(sizes.slice());
  table[slot] = made;
  return made;
}
