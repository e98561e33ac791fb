/** Another tensor on the same memory. */
import type { Storage } from './storage.js';
import { Tensor } from './tensor.js';

/** Another tensor on the memory of `t`, without history. @internal */
export function aliasOf(t: Tensor, storage: Storage | null = t.storage): Tensor {
  const alias = new Tensor(
    t.sizes,
    t.strides,
    t.storageOffset,
    t.dtype,
    t.device,
    storage,
    t.scalarValue,
    storage === t.storage ? t : null,
  );
  alias.sharding = t.sharding;
  return alias;
}
