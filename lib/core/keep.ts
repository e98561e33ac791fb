/** Letting a tensor outlive its scope without returning it. */
import { unexpected } from './options.js';
import { Tensor } from './tensor.js';

/** Takes a tensor out of the open scope: the collector, or `dispose`, frees it. Returns it. */
export function keep<T extends Tensor>(t: T): T {
  if (!(t instanceof Tensor)) throw unexpected('keep', 't', 'a tensor', t);
  t.storage?.escape();
  return t;
}
