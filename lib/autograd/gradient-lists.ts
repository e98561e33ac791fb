/** Lists of gradients, one for each output or input of a node; null where there is none. */

import { AutogradError } from '../core/errors.js';
import type { Tensor } from '../core/tensor.js';
import { fitReplaced } from './check-gradients.js';
import type { Gradients } from './node.js';

/** @throws AutogradError unless each gradient has a replacement of its shape and dtype */
export function replacedAll(
  given: readonly (Tensor | null)[],
  grads: Gradients,
  source: string,
): Gradients {
  if (given.length !== grads.length)
    throw new AutogradError(
      `${source} returned ${given.length} gradients, expected ${grads.length}`,
      { op: source, expected: grads.length, given: given.length },
    );
  return given.map((g, i) =>
    g === null || grads[i] === null || grads[i] === undefined
      ? g
      : fitReplaced(g, grads[i], source),
  );
}

/** With null where a gradient is missing. @internal */
export function padded(grads: Gradients, length: number): Gradients {
  if (grads.length === length && !grads.includes(undefined as unknown as null)) return grads;
  return Array.from({ length }, (_, i) => grads[i] ?? null);
}

/** @internal */
export function hasAny(grads: Gradients): boolean {
  for (let i = 0; i < grads.length; i++)
    if (grads[i] !== null && grads[i] !== undefined) return true;
  return false;
}
