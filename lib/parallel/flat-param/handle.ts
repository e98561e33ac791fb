/**
 * A flat parameter: it replaces the parameters of modules by views of one tensor, which one
 * collective makes whole.
 */
import { checkFlag, optionsOf, unexpected } from '../../core/options.js';
import {
  getProcessGroupRanks,
  isInitialized,
  type ProcessGroup,
  worldGroup,
} from '../../distributed/index.js';
import {
  type Device,
  type DeviceName,
  type DType,
  type DTypeLike,
  empty,
  nn,
  noGrad,
  type Tensor,
} from '../../index.js';
import { describe } from '../common/same-parameters.js';
import {
  checkUniform,
  entriesOf,
  type FlatEntry,
  FlatParameter,
  markFlattened,
  markReplaced,
} from './flat-entries.js';
import {
  alignedNumel,
  type FlatLayout,
  FlatParamShardMetadata,
  layOut,
  type ShardParamInfo,
  shardParamInfos,
} from './layout.js';
import { copyIn, ModuleTensors } from './module-tensors.js';
import { OriginalParameters } from './original-parameters.js';
import { checkStrategy, floatingDtype, type ShardingStrategyName } from './strategies.js';

/** Options of {@link FlatParamHandle}. */
export interface FlatParamHandleOptions {
  /** Where the flat parameter lies; that of the parameters by default. */
  device?: Device | DeviceName | null;
  /** What the ranks divide; `FULL_SHARD` by default. */
  shardingStrategy?: ShardingStrategyName;
  /** Whether the shard lies on the CPU between steps. */
  offloadParams?: boolean;
  /** The dtype of compute; that of the parameters if null. */
  mpParamDtype?: DTypeLike | null;
  /** The dtype in which gradients are reduced; `mpParamDtype` if null. */
  mpReduceDtype?: DTypeLike | null;
  /** Whether gradients stay in `mpParamDtype` for the optimizer, or get the dtype of the shards. */
  keepLowPrecisionGrads?: boolean;
  /** The ranks among which the flat parameter is divided; all of the world by default. */
  processGroup?: ProcessGroup | null;
  /** Whether optimizers keep the original parameters. */
  useOrigParams?: boolean;
  /** Only null: distributed parameters are flattened without an extension. */
  fsdpExtension?: null;
}

const OPTIONS =
  'device shardingStrategy offloadParams mpParamDtype mpReduceDtype keepLowPrecisionGrads ' +
  'processGroup useOrigParams fsdpExtension';

/** Fills the space between aligned parameters, to be seen where it should not be. */
const PADDING_VALUE = 42;

/**
 * The parameters of a module in one flat tensor. With `useOrigParams` each starts at a multiple of
 * 16 bytes of the dtype of compute, and the whole is padded to a multiple of the ranks; padding
 * holds 42. Otherwise they lie one after the other. A shared parameter lies there once.
 *
 * The constructor gives the modules views of the flat parameter. `FullyShardedDataParallel` makes
 * handles and divides them; few programs need one themselves.
 *
 * @see PyTorch `torch.distributed.fsdp._flat_param.FlatParamHandle`
 */
export class FlatParamHandle {
  /** All parameters, or this rank's shard of them. */
  readonly flatParam: FlatParameter;
  /** What the ranks divide. */
  readonly shardingStrategy: ShardingStrategyName;
  /** Whether the shard lies on the CPU between steps. */
  readonly offloadParams: boolean;
  /** Whether optimizers keep the original parameters. */
  readonly useOrigParams: boolean;
  /** The dtype of whole parameters in forward and backward; that of the shards if null. */
  readonly mpParamDtype: DType | null;
  /** The dtype in which gradients are reduced; `mpParamDtype` if null. */
  readonly mpReduceDtype: DType | null;
  /** Whether gradients stay in `mpParamDtype`. */
  readonly keepLowPrecisionGrads: boolean;
  /** @internal */
  readonly tensors: ModuleTensors;
  private readonly layout: FlatLayout;
  private readonly entries: readonly FlatEntry[];

  /**
   * @param params - parameters of the module, in any order
   * @throws ArgumentError for an empty list, parameters that are not in the module or flattened
   * already, and frozen ones without `useOrigParams`; DtypeError unless they have one floating
   * dtype; DeviceError unless they are on one device
   */
  constructor(
    params: readonly nn.Parameter[],
    module: nn.AnyModule,
    options: FlatParamHandleOptions = {},
  ) {
    const op = 'FlatParamHandle';
    if (!Array.isArray(params)) throw unexpected(op, 'params', 'a list of parameters', params);
    if (!(module instanceof nn.Module)) throw unexpected(op, 'module', 'an nn.Module', module);
    const given = optionsOf(op, options, OPTIONS);
    const { shardingStrategy = 'FULL_SHARD', offloadParams = false, useOrigParams = false } = given;
    const { keepLowPrecisionGrads = false, fsdpExtension = null } = given;
    checkStrategy(op, shardingStrategy);
    checkFlag(op, 'offloadParams', offloadParams);
    checkFlag(op, 'useOrigParams', useOrigParams);
    checkFlag(op, 'keepLowPrecisionGrads', keepLowPrecisionGrads);
    if (fsdpExtension !== null)
      throw unexpected(op, 'fsdpExtension', 'null, as DTensors need no extension', fsdpExtension);
    this.shardingStrategy = shardingStrategy;
    this.offloadParams = offloadParams;
    this.useOrigParams = useOrigParams;
    this.keepLowPrecisionGrads = keepLowPrecisionGrads;
    this.mpParamDtype = floatingDtype(op, 'mpParamDtype', given.mpParamDtype);
    this.mpReduceDtype = floatingDtype(op, 'mpReduceDtype', given.mpReduceDtype);
    const found = entriesOf(params, module);
    checkUniform(found, useOrigParams);
    markFlattened(found);
    this.entries = [...found.values()];
    const parameters = [...found.keys()];
    const [{ dtype, device }] = parameters as [nn.Parameter];
    const group = given.processGroup ?? (isInitialized() ? worldGroup() : null);
    this.layout = layOut(
      this.entries.map(({ numel }) => numel),
      useOrigParams ? alignedNumel((this.mpParamDtype ?? dtype).itemsize) : null,
      group === null ? 1 : getProcessGroupRanks(group).length,
    );
    const flat = noGrad(() => this.flattened(parameters, dtype, given.device ?? device));
    this.flatParam = new FlatParameter(
      flat,
      parameters.some(({ requiresGrad }) => requiresGrad),
    );
    this.flatParam._shardParamInfos = this._getShardMetadata(0, this.layout.numel - 1);
    if (!useOrigParams)
      for (const [parameter, { name }] of found)
        markReplaced(parameter, name, 'a flat parameter, unless { useOrigParams: true } is passed');
    const originals = useOrigParams ? new OriginalParameters(this.flatParam, found) : null;
    if (keepLowPrecisionGrads && this.mpParamDtype !== null)
      for (const p of originals?.parameters ?? [this.flatParam]) p.gradDtype = this.mpParamDtype;
    this.tensors = new ModuleTensors(module, this.entries, this.layout, this.flatParam, originals);
    this.tensors.useViews(this.flatParam);
  }

  /** Copies the parameters into a flat tensor. */
  private flattened(
    parameters: readonly Tensor[],
    dtype: DType,
    device: Device | DeviceName,
  ): Tensor {
    const flat = empty([this.layout.numel], { dtype, device });
    for (const { start, numel } of this.layout.padding)
      flat.narrow(0, start, numel).fill_(PADDING_VALUE);
    copyIn(flat, this.entries, this.layout, parameters);
    return flat;
  }

  /**
   * The part of each parameter in the elements from `start` to `end`, inclusive, of the whole flat
   * parameter. `end` may lie beyond its last element.
   */
  _getShardMetadata(start: number, end: number): ShardParamInfo[] {
    return shardParamInfos(this.layout, start, end);
  }

  /** What all ranks must have in common of each parameter. @internal */
  describe(): string[] {
    const trainable = this.tensors.trainable();
    const { dtype } = this.flatParam;
    return this.entries.map(
      ({ name, shape }, i) => `${name} ${describe(dtype, shape, !trainable[i])}`,
    );
  }

  /** The parameters that this rank's shard holds. */
  shardMetadata(): FlatParamShardMetadata {
    const held = this.entries.flatMap((entry, i) => {
      const info = this.flatParam._shardParamInfos[i] as ShardParamInfo;
      return info.inShard ? [{ entry, info }] : [];
    });
    return new FlatParamShardMetadata({
      paramNames: held.map(({ entry }) => entry.name),
      paramShapes: held.map(({ entry }) => entry.shape),
      paramNumels: held.map(({ entry }) => entry.numel),
      paramOffsets: held.map(
        ({ info }) => [info.intraParamStartIdx, info.intraParamEndIdx] as [number, number],
      ),
    });
  }
}
