/** A tensor that a gradient rule will read: kept by reference, with a check that nobody overwrote it meanwhile. */
import { InPlaceError } from '../core/errors.js';
import { type GradFn, Tensor } from '../core/tensor.js';

/** What replaces saved tensors, see {@link savedTensorsHooks}. */
export interface SavedTensorsHooks {
  pack: (t: Tensor) => unknown;
  unpack: (packed: unknown) => Tensor;
}

let hooks: SavedTensorsHooks | null = null;

/**
 * Inside `fn`, every tensor saved for backward is passed to `pack`, and what that returns is kept instead; backward gets the
 * tensor back from `unpack`. For offloading to the host, compression, or recomputation.
 *
 * @see PyTorch `torch.autograd.graph.saved_tensors_hooks`
 */
export function savedTensorsHooks<T, P>(pack: (t: Tensor) => P, unpack: (packed: P) => Tensor, fn: () => T): T {
  const before = hooks;
  hooks = { pack, unpack: unpack as (packed: unknown) => Tensor };
  try {
    return fn();
  } finally {
    hooks = before;
  }
}

export class SavedTensor {
  private tensor: Tensor | null;
  private readonly version: number;
  private readonly node: GradFn | null;
  private readonly outputNr: number;
  private readonly isOutput: boolean;
  private readonly unpackHook: ((packed: unknown) => Tensor) | null = null;
  private packed: unknown = null;

  /** `maker` is the node itself when an output is saved: kept out, so that it is found again at unpacking. */
  constructor(t: Tensor, maker: GradFn | null) {
    this.version = t._version;
    this.isOutput = maker !== null;
    this.node = maker === null ? t.gradFn : null;
    this.outputNr = t.outputNr;
    if (hooks !== null && t.storage !== null) {
      this.unpackHook = hooks.unpack;
      this.packed = hooks.pack(t);
      this.tensor = null;
      return;
    }
    this.tensor = t;
    t.storage?.hold();
  }

  /** The saved value with its history. @throws InPlaceError if it was overwritten since. */
  unpack(op: string, role: string, maker: GradFn): Tensor {
    if (this.unpackHook !== null) return this.unpackHook(this.packed);
    const t = this.tensor as Tensor;
    if (t.storage === null) return t;
    if (t._version !== this.version) throw overwritten(op, role, t, this.version);
    const node = this.isOutput ? maker : this.node;
    if (!t.disposed && t.node === node) return t;
    return withHistory(t, node, this.outputNr);
  }

  release(): void {
    const storage = this.tensor?.storage;
    if (storage && storage.handle !== 0) storage.unhold();
    this.tensor = null;
    this.packed = null;
  }
}

/** Another tensor object on the same memory: the saved one was disposed, or has a new history from an in-place change. */
function withHistory(t: Tensor, node: GradFn | null, outputNr: number): Tensor {
  const alias = new Tensor(t.shape, t.strides, t.storageOffset, t.dtype, t.device, t.storage);
  alias.versionCounter = t.versionCounter;
  alias.node = node;
  alias.outputNr = outputNr;
  if (node === null) {
    alias.leafRequiresGrad = t.leafRequiresGrad;
    alias.gradAccumulator = t.gradAccumulator;
  }
  return alias;
}

function overwritten(op: string, role: string, t: Tensor, version: number): InPlaceError {
  return new InPlaceError(
    `backward of ${op} needs ${role}, ${t.dtype.name}[${t.shape.join(', ')}], but it was changed in place after it was saved: it was at version ${version}, ` +
      `now ${t._version}. Use the out-of-place op, or clone() it before the change.`,
    { op, role, saved: version, now: t._version },
  );
}
