/** Letting a tensor outlive its scope without returning it. */
import type { Tensor } from './tensor.js';

/** Takes a tensor out of the open scope: the collector, or `dispose`, frees it. Returns it. */
export function keep<T extends Tensor>(t: T): T {
  t.storage?.escape();
  return t;
}
