/** The tensors of a flat parameter in the modules that use them. */
import { declareMade } from '../../core/library-exports.js';
import type { DeviceMesh } from '../../distributed/index.js';
import {
  compiler,
  empty,
  enableGrad,
  foreachCopy_,
  nn,
  noGrad,
  type Shape,
  ShardingError,
  type Tensor,
  zeros,
} from '../../index.js';
import { adviceOnFlat } from '../fully-shard/advice.js';
import type { Slot } from '../fully-shard/sharded-parameter.js';
import {
  type FlatEntry,
  type FlatParameter,
  localLike,
  memberOf,
  setMember,
  shardingMesh,
  viewOf,
} from './flat-entries.js';
import { type FlatMemory, type ViewSource, viewsOfFlat } from './flat-views.js';
import { type FlatLayout, type FlatRange, type ShardParamInfo, shardParamInfos } from './layout.js';
import type { OriginalParameters } from './original-parameters.js';

/** The property of a module that holds its flat parameter. */
const FLAT_PARAM = '_flat_param';

export class ModuleTensors implements ViewSource {
  readonly shapes: readonly Shape[];
  /** Where the flat parameter is a parameter of the module. */
  private readonly slot: Slot;
  private readonly entries: readonly FlatEntry[];
  private readonly layout: FlatLayout;
  private readonly flatParam: FlatParameter;
  /** Null unless optimizers keep them. */
  private readonly originals: OriginalParameters | null;
  /**
   * The parameters as the last whole tensor has given them to modules. Backward may run a forward
   * again, which needs those with a history.
   */
  private views: { readonly flat: Tensor; readonly tensors: readonly Tensor[] } | null = null;
  /** What modules hold between steps, for the memory that the shard has. */
  private between: { readonly memory: object; readonly tensors: readonly Tensor[] } | null = null;
  /** The name of a parameter as errors show it. */
  private fullName = (name: string): string => name;
  /** Whether they do. */
  private isShardedInModules = false;
  /** Whether modules hold parameters to be read and written. */
  private hasParameters = false;

  constructor(
    module: nn.AnyModule,
    entries: readonly FlatEntry[],
    layout: FlatLayout,
    flatParam: FlatParameter,
    originals: OriginalParameters | null,
  ) {
    this.slot = { module, name: FLAT_PARAM };
    this.entries = entries;
    this.shapes = entries.map(({ shape }) => shape);
    this.layout = layout;
    this.flatParam = flatParam;
    this.originals = originals;
  }

  /**
   * Pads the flat parameter with zeros to equal shards of so many ranks, before it is divided. Sets
   * what the shard of one of them holds.
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
    flatParam._shardParamInfos = shardParamInfos(layout, rank * each, (rank + 1) * each - 1);
    flatParam._isWhole = ranks === 1;
  }

  trainable(): readonly boolean[] {
    const { originals, flatParam } = this;
    if (originals === null) return this.entries.map(() => flatParam.requiresGrad);
    return originals.parameters.map(({ requiresGrad }) => requiresGrad);
  }

  private rangeOf(i: number): FlatRange {
    return this.layout.parameters[i] as FlatRange;
  }

  /** Sets how errors name parameters. */
  nameBy(fullName: (name: string) => string): void {
    this.fullName = fullName;
  }

  /** The parameter at an offset of the whole flat parameter. */
  nameAt(offset: number): string {
    const i = this.layout.parameters.findLastIndex(({ start }) => start <= offset);
    return this.fullName((this.entries[i] as FlatEntry).name);
  }

  /** Whether parameters are distributed tensors, of which the flat one has the local shards. */
  get isTensorParallel(): boolean {
    return this.entries.some(({ distributed }) => distributed !== null);
  }

  viewsOf(flat: Tensor): Tensor[] {
    return this.entries.map((entry, i) => viewOf(entry, flat, this.rangeOf(i).start));
  }

  flatGradient(grads: readonly (Tensor | null)[], { numel, dtype, device }: FlatMemory): Tensor {
    const isFilled = this.layout.numel === numel && this.layout.padding.length === 0;
    const isComplete = isFilled && !grads.includes(null);
    const flat = (isComplete ? empty : zeros)([numel], { dtype, device });
    copyIn(flat, this.entries, this.layout, grads);
    return flat;
  }

  /** Gives modules the parameters of a whole flat tensor. */
  useViews(flat: Tensor): void {
    this.isShardedInModules = false;
    if (compiler.isCompiling()) {
      // Each run of the graph makes views of its own.
      this.put(viewsOfFlat(this, flat));
      return;
    }
    // Backward, which records nothing, gives modules those of an earlier forward again.
    if (this.views?.flat !== flat)
      this.views = { flat, tensors: enableGrad(() => viewsOfFlat(this, flat)) };
    this.put(this.views.tensors);
  }

  /**
   * Gives modules what is there between steps: the original parameters, or tensors without values
   * and the flat parameter. Nothing happens between {@link useParameters} and
   * {@link leaveParameters}.
   */
  useShard(): void {
    if (this.hasParameters || this.isShardedInModules) return;
    if (this.originals !== null) {
      if (!compiler.isCompiling()) this.originals.use();
      this.put(this.originals.parameters);
    } else {
      this.put(this.placeholders());
      setMember(this.slot, this.flatParam);
    }
    this.isShardedInModules = true;
  }

  /** The whole parameters where this rank has them, else tensors whose memory is not there. */
  private placeholders(): readonly Tensor[] {
    const { flatParam } = this;
    // A capture gives modules what they held before it.
    if (this.between !== null && compiler.isCompiling()) return this.between.tensors;
    const memory = flatParam.untypedStorage();
    if (this.between?.memory !== memory)
      this.between = { memory, tensors: noGrad(() => this.newPlaceholders()) };
    return this.between.tensors;
  }

  private newPlaceholders(): Tensor[] {
    const { flatParam } = this;
    if (flatParam._isWhole) return this.viewsOf(flatParam.detach());
    const { dtype, device } = flatParam;
    const absent = empty([this.layout.numel], { dtype, device });
    const views = this.viewsOf(absent);
    const explain = (offset: number): string => adviceOnFlat(this.nameAt(offset));
    absent.untypedStorage().resize_(0).explainErrors(explain);
    return views;
  }

  /**
   * Lets modules that hold parts of their original parameters refuse to run: an op would find other
   * shapes, or none that it minds.
   */
  refuseParts(): void {
    for (const { name, slots } of this.entries)
      for (const { module } of slots) {
        const refuse = declareMade(() => this.refuseOutside(module, name));
        module.registerForwardPreHook(refuse);
      }
  }

  private refuseOutside(module: nn.AnyModule, name: string): void {
    if (!this.isShardedInModules) return;
    const parameter = this.fullName(name);
    throw new ShardingError(
      `FullyShardedDataParallel: expected ${module.constructor.name} to run inside of its ` +
        `wrapper, got a call from outside. ${adviceOnFlat(parameter)}`,
      { op: 'FullyShardedDataParallel', parameter },
    );
  }

  /** Gives modules parameters on a whole flat tensor, to be read and written. */
  useParameters(flat: Tensor): void {
    const views = noGrad(() => this.viewsOf(flat));
    this.hasParameters = true;
    this.isShardedInModules = false;
    delete (this.slot.module as unknown as Record<string, unknown>)[FLAT_PARAM];
    this.put(views.map((view, i) => this.summoned(view, i)));
  }

  private summoned(view: Tensor, i: number): nn.Parameter {
    const parameter = new nn.Parameter(view, this.trainable()[i] as boolean);
    parameter.replacedBecause =
      `"${this.fullName((this.entries[i] as FlatEntry).name)}" is there in summonFullParams ` +
      'only. Make the optimizer outside of it.';
    return parameter;
  }

  /** Gives modules back what is there between steps. */
  leaveParameters(): void {
    this.hasParameters = false;
    this.useShard();
  }

  /** Copies what modules hold in place of the parameters of {@link useParameters} into `flat`. */
  takeParameters(flat: Tensor): void {
    const storage = flat.untypedStorage();
    const values = this.entries.map(({ slots: [slot] }) => memberOf(slot as never) as Tensor);
    noGrad(() =>
      copyIn(
        flat,
        this.entries,
        this.layout,
        values.map((value) => (value.untypedStorage() === storage ? null : value)),
      ),
    );
  }

  private put(tensors: readonly Tensor[]): void {
    for (const [i, { slots }] of this.entries.entries())
      for (const slot of slots) setMember(slot, tensors[i]);
  }

  /** The parameters that optimizers update. */
  get trainedParameters(): readonly nn.Parameter[] {
    return this.originals?.parameters ?? [this.flatParam];
  }

  /**
   * The gradients on this rank, by the meshes of tensor parallelism over which they are sharded.
   * All ranks get the same meshes in the same order.
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
    if (this.originals !== null) return (this.originals.parameters[i] as Tensor).grad;
    const { offsetInShard, numelInShard } = this.flatParam._shardParamInfos[i] as ShardParamInfo;
    if (offsetInShard === null || numelInShard === null) return null;
    return this.flatParam.grad?.narrow(0, offsetInShard, numelInShard) ?? null;
  }

  /** Whether {@link takeOver} would change more than values, and modules hold other dtypes. */
  get isStale(): boolean {
    const { originals, between, flatParam } = this;
    if (originals !== null) return originals.isStale;
    return between !== null && between.tensors[0]?.dtype !== flatParam.dtype;
  }

  /**
   * Takes over what the program has changed between steps: original parameters whose memory was
   * replaced, and other memory of the shard.
   */
  takeOver(): void {
    this.originals?.adopt();
    if (this.originals !== null || !this.isShardedInModules) return;
    const { between } = this;
    const tensors = this.placeholders();
    if (tensors !== between?.tensors) this.put(tensors);
  }
}

/** Copies values into their places in a flat tensor; null for those that are there already. */
export function copyIn(
  flat: Tensor,
  entries: readonly FlatEntry[],
  { parameters }: FlatLayout,
  values: readonly (Tensor | null)[],
): void {
  const targets: Tensor[] = [];
  const sources: Tensor[] = [];
  for (const [i, value] of values.entries()) {
    if (value === null) continue;
    const { start, numel } = parameters[i] as FlatRange;
    targets.push(flat.narrow(0, start, numel));
    sources.push(localLike(entries[i] as FlatEntry, value.detach()).reshape([-1]));
  }
  foreachCopy_(targets, sources);
}
