/** Options of `fullyShard` that concern dtypes and the place of shards. */
import { checkFlag, optionsOf } from '../../core/options.js';
import { ArgumentError, type DType, type DTypeLike, empty } from '../../index.js';

/** Options of {@link MixedPrecisionPolicy}. */
export interface MixedPrecisionOptions {
  /** The dtype of unsharded parameters, of compute and of gradients; that of the shards if null. */
  paramDtype?: DTypeLike | null;
  /** The dtype in which gradients are reduced; `paramDtype` if null. */
  reduceDtype?: DTypeLike | null;
  /** Floating results of `forward` are cast to it, unless it is null. */
  outputDtype?: DTypeLike | null;
  /**
   * Whether floating arguments of `forward` are cast to `paramDtype`, also in arrays, plain
   * objects, maps and sets. Those in instances of classes are not. True by default.
   */
  castForwardInputs?: boolean;
}

function dtypeOf(name: string, given: DTypeLike | null | undefined): DType | null {
  if (given === null || given === undefined) return null;
  const { dtype } = empty([0], { dtype: given });
  if (dtype.isFloatingPoint) return dtype;
  throw new ArgumentError(
    `MixedPrecisionPolicy: expected ${name} to be a floating point dtype, got ${dtype.name}`,
    { op: 'MixedPrecisionPolicy', argument: name, given: dtype.name },
  );
}

/**
 * The dtypes of a group of parameters: shards keep their own dtype, for the optimizer.
 *
 * @see PyTorch `torch.distributed.fsdp.MixedPrecisionPolicy`
 * @example
 * new MixedPrecisionPolicy({ paramDtype: bfloat16, reduceDtype: float32 })
 */
export class MixedPrecisionPolicy {
  /** The dtype of unsharded parameters and of compute; null for that of the shards. */
  readonly paramDtype: DType | null;
  /** The dtype in which gradients are reduced; null for `paramDtype`. */
  readonly reduceDtype: DType | null;
  /** The dtype of floating results of `forward`; null to leave them. */
  readonly outputDtype: DType | null;
  /** Whether floating arguments of `forward` are cast to `paramDtype`. */
  readonly castForwardInputs: boolean;

  /** @throws ArgumentError for a dtype that is not floating */
  constructor(options: MixedPrecisionOptions = {}) {
    const op = 'MixedPrecisionPolicy';
    const {
      paramDtype,
      reduceDtype,
      outputDtype,
      castForwardInputs = true,
    } = optionsOf(op, options, 'paramDtype reduceDtype outputDtype castForwardInputs');
    checkFlag(op, 'castForwardInputs', castForwardInputs);
    this.paramDtype = dtypeOf('paramDtype', paramDtype);
    this.reduceDtype = dtypeOf('reduceDtype', reduceDtype);
    this.outputDtype = dtypeOf('outputDtype', outputDtype);
    this.castForwardInputs = castForwardInputs;
  }
}

/**
 * Where shards lie: on the device of the mesh.
 *
 * @see PyTorch `torch.distributed.fsdp.OffloadPolicy`
 */
export class OffloadPolicy {
  /** Whether shards, their gradients and the optimizer are on the CPU. */
  readonly toCpu: boolean = false;
  /** Whether the shards on the CPU lie in pinned memory. */
  readonly pinMemory: boolean = false;
}

/**
 * Shards, their gradients and the optimizer are on the CPU. A shard is copied to the device before
 * it is gathered, and its gradient to the CPU after it is reduced.
 *
 * @see PyTorch `torch.distributed.fsdp.CPUOffloadPolicy`
 */
export class CPUOffloadPolicy extends OffloadPolicy {
  override readonly toCpu: boolean = true;
  override readonly pinMemory: boolean;

  constructor(options: { pinMemory?: boolean } = {}) {
    super();
    const { pinMemory = true } = optionsOf('CPUOffloadPolicy', options, 'pinMemory');
    checkFlag('CPUOffloadPolicy', 'pinMemory', pinMemory);
    this.pinMemory = pinMemory;
  }
}
