/** Compares nodes of two graphs. */
import { isDeepStrictEqual } from 'node:util';
import type { Node } from './node.js';

/** Whether two nodes do the same, each on its own operands, of which they have as many. */
export function isSameStep(a: Node, b: Node): boolean {
  return (
    a.kind === b.kind &&
    a.op === b.op &&
    a.effect === b.effect &&
    a.mode === b.mode &&
    a.inputs.length === b.inputs.length &&
    isDeepStrictEqual(withoutDraw(a.params), withoutDraw(b.params))
  );
}

/** The random state of a draw is another one at each capture; a run draws anew. */
export function withoutDraw(params: object): object {
  const { seedLow, seedHigh, offset, ...others } = params as Record<string, unknown>;
  return others;
}
