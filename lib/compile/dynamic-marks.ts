/** `markDynamic`: sizes that a program expects to change. */
import { ArgumentError } from '../core/errors.js';
import { shown } from '../core/options.js';
import { wrapDim } from '../core/shape.js';
import { Tensor } from '../core/tensor.js';

const marks = new WeakMap<Tensor, Set<number>>();

/**
 * Marks a dim of a tensor as one whose size changes between calls. A compiled function that gets
 * the tensor makes a graph for all sizes of the dim from 2 on at its first call, also if its option
 * `dynamic` is false.
 *
 * @param t the tensor that is going to be an argument, of any shape and dtype
 * @param dim the dims: each from `-ndim` to `ndim - 1`
 * @throws ArgumentError if `t` is no tensor, IndexError if it has no such dim. The call of the
 * compiled function throws CompileError if its graph can have only the size that is there
 * @see PyTorch `torch._dynamo.mark_dynamic`
 */
export function markDynamic(t: Tensor, dim: number | readonly number[]): void {
  if (!(t instanceof Tensor))
    throw new ArgumentError(`markDynamic: expected t to be a tensor, got ${shown(t)}`, {
      op: 'markDynamic',
      argument: 't',
      given: t,
    });
  const dims = [dim].flat().map((each) => wrapDim(each, t.sizes.length, 'markDynamic'));
  marks.set(t, new Set([...(marks.get(t) ?? []), ...dims]));
}

/** Whether a dim of a tensor is marked. @internal */
export function isMarked(t: Tensor, dim: number): boolean {
  return marks.get(t)?.has(dim) ?? false;
}
