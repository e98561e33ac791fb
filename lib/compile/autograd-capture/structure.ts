/** Compares what two backward passes run, and the metadata of the tensors that they read. */
import { isPlain } from '../../core/plain-object.js';
import { Tensor } from '../../core/tensor.js';

/**
 * Whether two values are equal: arrays and plain objects by their items, at any depth, and all
 * others by identity. Tensors in them are compared by identity, too.
 */
export function sameStructure(a: unknown, b: unknown): boolean {
  if (Object.is(a, b)) return true;
  if (Array.isArray(a))
    return (
      Array.isArray(b) && a.length === b.length && a.every((item, i) => sameStructure(item, b[i]))
    );
  if (a instanceof Tensor || !isPlain(a) || !isPlain(b)) return false;
  const names = Object.keys(a);
  return (
    names.length === Object.keys(b).length &&
    names.every((name) => name in b && sameStructure(a[name], b[name]))
  );
}

/** Adds what {@link sameStructure} compares by identity, in the order in which it stands there. */
export function addIdentities(value: unknown, to: Set<object>): void {
  if (typeof value === 'function') to.add(value);
  if (typeof value !== 'object' || value === null) return;
  if (Array.isArray(value)) for (const item of value) addIdentities(item, to);
  else if (!(value instanceof Tensor) && isPlain(value))
    for (const name of Object.keys(value)) addIdentities(value[name], to);
  else to.add(value);
}

/**
 * The metadata of tensors, and which of them share memory. Equal metadata makes a graph of one pass
 * right for the other.
 */
export function metadataOf(tensors: readonly Tensor[]): readonly unknown[] {
  const storages = new Map<unknown, number>();
  return tensors.map((t) => {
    const known = storages.get(t.storage) ?? storages.size;
    storages.set(t.storage, known);
    const { dtype, device, sizes: shape, strides, storageOffset, requiresGrad, sharding } = t;
    return [
      dtype,
      device,
      shape,
      strides,
      storageOffset,
      requiresGrad,
      sharding?.spec ?? null,
      sharding?.local.strides ?? null,
      known,
      t.storage?.nbytes === 0,
    ];
  });
}
