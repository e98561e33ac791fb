/** Casts the floating tensors in arguments and results of modules. */
import { type DType, Tensor, tree } from '../../index.js';

/**
 * The value with its floating tensors in a dtype. Arrays, plain objects, maps, sets and objects
 * without a prototype are copied, to any depth. Instances of classes stay as they are, because a
 * copy may lack what their constructor does: `forward` casts what is in them.
 *
 * @see PyTorch, which casts in `_cast_fp_tensor` what its pytree flattens
 */
export function castTensors<T>(value: T, dtype: DType): T {
  const cast = (leaf: unknown): unknown =>
    leaf instanceof Tensor && leaf.dtype.isFloatingPoint ? leaf.to(dtype) : leaf;
  const replace = (object: object): object => {
    if (object instanceof Set && Object.getPrototypeOf(object) === Set.prototype)
      return new Set([...object].map((item) => castTensors(item, dtype)));
    if (Object.getPrototypeOf(object) !== null) return object;
    return Object.assign(
      Object.create(null),
      castTensors(Object.fromEntries(Object.entries(object)), dtype),
    );
  };
  return tree.mapLeaves(cast, value, replace) as T;
}
