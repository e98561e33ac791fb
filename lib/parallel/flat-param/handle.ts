/**
 * A flat parameter: it replaces the parameters of modules by views of one tensor, which one
 * collective makes whole.
 */
import { checkFlag, optionsOf, unexpected } from '../../core/options.js';
import {
  type DeviceMesh,
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
  foreachCopy_,
  nn,
  noGrad,
  type Tensor,
  zeros,
} from '../../index.js';
import {
  checkUniform,
  entriesOf,
  type FlatEntry,
  FlatParameter,
  localLike,
  memberOf,
  setMember,
  shardingMesh,
  viewOf,
} from './flat-entries.js';
import { type FlatMemory, FlatViews, type ViewSource } from './flat-views.js';
import {
  alignedNumel,
  type FlatLayout,
  FlatParamShardMetadata,
  type FlatRange,
  layOut,
  type ShardParamInfo,
  shardParamInfos,
} from './layout.js';
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
  /** The ranks among which the flat parameter is divided; all of the world by default. */
  processGroup?: ProcessGroup | null;
  /** Whether optimizers keep the original parameters. */
  useOrigParams?: boolean;
}

const OPTIONS =
  'device shardingStrategy offloadParams mpParamDtype mpReduceDtype processGroup useOrigParams';

/** Fills the space between aligned parameters, to be seen where it should not be. */
const PADDING_VALUE = 42;

/** The property of a module that holds its flat parameter. */
export const FLAT_PARAM = '_flat_param';

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
export class FlatParamHandle implements ViewSource {
  /** All parameters, or this rank's shard of them. */
  readonly flatParam: FlatParameter;
  readonly shardingStrategy: ShardingStrategyName;
  readonly offloadParams: boolean;
  readonly useOrigParams: boolean;
  /** The dtype of whole parameters in forward and backward; that of the shards if null. */
  readonly mpParamDtype: DType | null;
  readonly mpReduceDtype: DType | null;
  /** @internal */
  readonly layout: FlatLayout;
  private readonly module: nn.AnyModule;
  private readonly entries: readonly FlatEntry[];
  private readonly originals: OriginalParameters | null;
  /** The parameters as the last whole tensor has given them to modules. */
  private views: { readonly flat: Tensor; readonly tensors: readonly Tensor[] } | null = null;
  /** Whether modules hold what is there between steps. */
  private isShardedInModules = false;

  /**
   * @param params - parameters of the module, in any order
   * @throws ArgumentError for an empty list, parameters that are not in the module or flattened
   * already, and frozen ones without `useOrigParams`; DtypeError unless they have one floating dtype;
   * DeviceError unless they are on one device
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
    checkStrategy(op, shardingStrategy);
    checkFlag(op, 'offloadParams', offloadParams);
    checkFlag(op, 'useOrigParams', useOrigParams);
    this.shardingStrategy = shardingStrategy;
    this.offloadParams = offloadParams;
    this.useOrigParams = useOrigParams;
    this.mpParamDtype = floatingDtype(op, 'mpParamDtype', given.mpParamDtype);
    this.mpReduceDtype = floatingDtype(op, 'mpReduceDtype', given.mpReduceDtype);
    this.module = module;
    this.entries = entriesOf(params, module);
    checkUniform(this.entries, useOrigParams);
    const { dtype, device } = (this.entries[0] as FlatEntry).parameter;
    const group = given.processGroup ?? (isInitialized() ? worldGroup() : null);
    this.layout = layOut(
      this.entries.map(({ numel }) => numel),
      useOrigParams ? alignedNumel((this.mpParamDtype ?? dtype).itemsize) : null,
      group?.size ?? 1,
    );
    const flat = noGrad(() => this.flattened(given.device ?? device));
    this.flatParam = new FlatParameter(flat, this.trainable().includes(true));
    this.flatParam._shardParamInfos = this._getShardMetadata(0, this.layout.numel - 1);
    this.originals = useOrigParams ? new OriginalParameters(this.flatParam, this.entries) : null;
    this.useViews(this.flatParam);
  }

  /** Copies the parameters into a flat tensor. */
  private flattened(device: Device | DeviceName): Tensor {
    const { dtype } = (this.entries[0] as FlatEntry).parameter;
    const flat = empty([this.layout.numel], { dtype, device });
    for (const { start, numel } of this.layout.padding)
      flat.narrow(0, start, numel).fill_(PADDING_VALUE);
    this.copyIn(
      flat,
      this.entries.map(({ parameter }) => parameter),
    );
    return flat;
  }

  /** Copies values into a flat tensor; null for those that are there already. */
  private copyIn(flat: Tensor, values: readonly (Tensor | null)[]): void {
    const targets: Tensor[] = [];
    const sources: Tensor[] = [];
    for (const [i, value] of values.entries()) {
      if (value === null) continue;
      const { start, numel } = this.rangeOf(i);
      const entry = this.entries[i] as FlatEntry;
      targets.push(flat.narrow(0, start, numel));
      sources.push(localLike(entry, value.detach()).reshape([-1]));
    }
    foreachCopy_(targets, sources);
  }

  private rangeOf(i: number): FlatRange {
    return this.layout.parameters[i] as FlatRange;
  }

  /**
   * The part of each parameter in the elements from `start` to `end`, inclusive, of the whole flat
   * parameter. `end` may lie beyond its last element.
   */
  _getShardMetadata(start: number, end: number): ShardParamInfo[] {
    return shardParamInfos(this.layout, start, end);
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

  /**
   * Pads the flat parameter with zeros to equal shards of so many ranks, before it is divided. Sets
   * what the shard of one of them holds. @internal
   */
  padFor(ranks: number, rank: number): void {
    const { flatParam, layout } = this;
    const each = Math.ceil(layout.numel / ranks);
    const missing = each * ranks - layout.numel;
    if (missing > 0)
      noGrad(() => {
        const padded = zeros([each * ranks], { dtype: flatParam.dtype, device: flatParam.device });
        padded.narrow(0, 0, layout.numel).copy_(flatParam);
        flatParam.data = padded;
      });
    flatParam._shardParamInfos = this._getShardMetadata(rank * each, (rank + 1) * each - 1);
    flatParam._isWhole = ranks === 1;
  }

  trainable(): readonly boolean[] {
    return this.entries.map(({ parameter }) => parameter.requiresGrad);
  }

  viewsOf(flat: Tensor): Tensor[] {
    return this.entries.map((entry, i) => viewOf(entry, flat, this.rangeOf(i).start));
  }

  flatGradient(grads: readonly (Tensor | null)[], { numel, dtype, device }: FlatMemory): Tensor {
    const isFilled = this.layout.numel === numel && this.layout.padding.length === 0;
    const isComplete = isFilled && !grads.includes(null);
    const flat = (isComplete ? empty : zeros)([numel], { dtype, device });
    this.copyIn(flat, grads);
    return flat;
  }

  /** Gives modules the parameters of a whole flat tensor. @internal */
  useViews(flat: Tensor): void {
    if (this.views?.flat !== flat) this.views = { flat, tensors: FlatViews.apply(this, flat) };
    this.unregister();
    this.put(this.views.tensors);
  }

  /**
   * Gives modules what is there between steps: the original parameters, or tensors without values
   * and the flat parameter. @internal
   */
  useShard(): void {
    if (this.originals !== null) {
      this.originals.use();
      if (!this.isShardedInModules) this.put(this.originals.parameters);
    } else if (!this.isShardedInModules) {
      this.put(this.placeholders());
      setMember({ module: this.module, name: FLAT_PARAM }, this.flatParam);
    }
    this.views = null;
    this.isShardedInModules = true;
  }

  /** The whole parameters where this rank has them, else tensors on meta. */
  private placeholders(): Tensor[] {
    const { flatParam } = this;
    return noGrad(() => {
      if (flatParam._isWhole) return this.viewsOf(flatParam.detach());
      return this.entries.map(({ parameter, distributed, shape }) =>
        empty(distributed?.shape ?? shape, { dtype: parameter.dtype, device: 'meta' }),
      );
    });
  }

  /** Gives modules parameters on a whole flat tensor, to be read and written. @internal */
  useParameters(flat: Tensor): void {
    const views = noGrad(() => this.viewsOf(flat));
    this.unregister();
    this.put(views.map((view, i) => new nn.Parameter(view, this.trainable()[i] as boolean)));
  }

  /** Copies what modules hold in place of the parameters of {@link useParameters} into `flat`. @internal */
  takeParameters(flat: Tensor): void {
    const storage = flat.untypedStorage();
    const values = this.entries.map(({ slots: [slot] }) => memberOf(slot as never) as Tensor);
    noGrad(() =>
      this.copyIn(
        flat,
        values.map((value) => (value.untypedStorage() === storage ? null : value)),
      ),
    );
  }

  private put(tensors: readonly Tensor[]): void {
    for (const [i, { slots }] of this.entries.entries())
      for (const slot of slots) setMember(slot, tensors[i]);
  }

  private unregister(): void {
    this.isShardedInModules = false;
    delete (this.module as unknown as Record<string, unknown>)[FLAT_PARAM];
  }

  /** The parameters that optimizers update. @internal */
  get trainedParameters(): readonly nn.Parameter[] {
    return this.originals === null
      ? [this.flatParam]
      : this.entries.map(({ parameter }) => parameter);
  }

  /**
   * The gradients on this rank, by the meshes of tensor parallelism over which they are sharded. All
   * ranks get the same meshes in the same order. @internal
   */
  gradientsByMesh(): Map<DeviceMesh | null, Tensor[]> {
    const byMesh = new Map<DeviceMesh | null, Tensor[]>();
    if (this.entries.every(({ distributed }) => distributed === null)) {
      const grads = this.trainedParameters.flatMap(({ grad }) => grad ?? []);
      return byMesh.set(null, grads);
    }
    for (const [i, entry] of this.entries.entries()) {
      const mesh = shardingMesh(entry);
      const known = byMesh.get(mesh) ?? [];
      byMesh.set(mesh, known);
      const grad = this.gradientOf(i);
      if (grad !== null) known.push(grad);
    }
    return byMesh;
  }

  /** The gradient of this rank's part of a parameter. */
  private gradientOf(i: number): Tensor | null {
    if (this.originals !== null) return (this.entries[i] as FlatEntry).parameter.grad;
    const { offsetInShard, numelInShard } = this.flatParam._shardParamInfos[i] as ShardParamInfo;
    if (offsetInShard === null || numelInShard === null) return null;
    return this.flatParam.grad?.narrow(0, offsetInShard, numelInShard) ?? null;
  }

  /** Copies values of original parameters whose memory was replaced. @internal */
  adoptOriginals(): void {
    this.originals?.adopt();
  }
}
