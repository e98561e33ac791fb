/**
 * The spec of a distributed tensor: the metadata of the whole tensor, the mesh, and one placement
 * for each mesh dimension. Specs are interned: equal specs are one object, so `===` compares them
 * and caches use their ids as keys.
 *
 * @see PyTorch `torch.distributed.tensor._dtensor_spec`
 */
import type { DType } from '../../core/dtype.js';
import { type Interned, interned } from '../../core/interned-class.js';
import { optionsOf, unexpected } from '../../core/options.js';
import { type Placement, Replicate } from '../../core/placement.js';
import { formatShape, type Shape } from '../../core/shape.js';
import { formatMesh, type MeshLayout, meshDimName } from '../../distributed/device-mesh/layout.js';
import { checkMesh, checkPlacements, checkShardOrder } from './checks.js';
import {
  checkMetaFields,
  FrozenMeta,
  frozen,
  metaKey,
  type ShardOrder,
  type TensorMeta,
} from './tensor-meta.js';

export { type ShardOrder, TensorMeta } from './tensor-meta.js';

/** Options of {@link DTensorSpec}. */
export interface DTensorSpecOptions {
  /**
   * The metadata of the whole tensor: `TensorMeta(shape, stride, dtype)`, or an object with shape,
   * strides and dtype.
   */
  tensorMeta: TensorMeta;
  /**
   * For each tensor dim, the mesh dims that shard it, outermost first; by default in ascending
   * order. FSDP over tensor parallel on a mesh `(dp, tp)` shards dim 0 by tp and the shards by dp:
   * `[[1, 0]]`. Dims that at most one mesh dim shards may be left out.
   */
  shardOrder?: ShardOrder | null;
}

class Spec {
  /** @internal a small number, unique for each spec, for keys of caches */
  readonly id: number;
  /** The mesh of the tensor. */
  readonly mesh: MeshLayout;
  /** One placement for each mesh dim; shard dims are not negative. */
  readonly placements: readonly Placement[];
  /** For each tensor dim, the mesh dims that shard it, outermost first. */
  readonly order: ShardOrder;
  /** Shape, stride and dtype of the whole tensor. */
  readonly tensorMeta: FrozenMeta;
  /** @internal the last `redistribute` call and its result, because programs repeat their calls */
  asked: { readonly placements: readonly Placement[]; readonly spec: DTensorSpec } | null = null;
  /** @internal see {@link gradientSpec} */
  gradient: DTensorSpec | null = null;

  constructor(
    id: number,
    mesh: MeshLayout,
    placements: readonly Placement[],
    order: ShardOrder,
    tensorMeta: FrozenMeta,
  ) {
    this.id = id;
    this.mesh = mesh;
    this.placements = placements;
    this.order = order;
    this.tensorMeta = tensorMeta;
  }

  /** Sizes of the whole tensor. */
  get shape(): Shape {
    return this.tensorMeta.shape;
  }

  /** The dtype of the tensor. */
  get dtype(): DType {
    return this.tensorMeta.dtype;
  }

  /** Number of tensor dims. */
  get ndim(): number {
    return this.tensorMeta.shape.length;
  }

  /** Whether each rank holds the whole tensor. */
  isReplicated(): boolean {
    return this.placements.every((placement) => placement.isReplicate());
  }

  /** `float32[16, 10] on mesh (dp: 2, tp: 4): [Shard(0), Replicate()]` */
  toString(): string {
    return `${this.tensorInWords()} on ${this.meshInWords()}: ${this.placementsInWords()}`;
  }

  /** @internal `float32[16, 10]` */
  tensorInWords(): string {
    return `${this.dtype.name}${formatShape(this.shape)}`;
  }

  /** @internal `mesh (dp: 2, tp: 4)` */
  meshInWords(): string {
    return formatMesh(this.mesh);
  }

  /** @internal `[Shard(0), Replicate()]`, and the shard order if it is not the default */
  placementsInWords(): string {
    return `${formatPlacements(this.placements)}${formatOrder(this.mesh, this.order)}`;
  }

  /** @internal */
  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return `DTensorSpec(${this})`;
  }
}

export type DTensorSpec = Spec;

/** `[Shard(0), Replicate()]` */
export function formatPlacements(placements: readonly Placement[]): string {
  return `[${placements.join(', ')}]`;
}

/** Empty for the default order. */
function formatOrder(mesh: MeshLayout, order: ShardOrder): string {
  const parts = order.flatMap((meshDims, dim) => {
    const real = meshDims.filter((meshDim) => mesh.shape[meshDim] !== 1);
    if (real.every((meshDim, i) => i === 0 || meshDim > (real[i - 1] as number))) return [];
    const names = real.map((meshDim) =>
      mesh.meshDimNames === null ? `mesh dim ${meshDim}` : meshDimName(mesh, meshDim),
    );
    return [`, dim ${dim} sharded by ${names.join(', then ')}`];
  });
  return parts.join('');
}

/**
 * How a tensor is placed on the ranks of a mesh. Equal arguments give the same object, with or
 * without `new`.
 *
 * @param placements one for each mesh dim; negative shard dims count from the end
 * @throws ShardingError unless placements fit the mesh, and the shard order lists the mesh dims
 * that shard each tensor dim
 * @throws IndexError for a shard dim that the tensor does not have
 * @see PyTorch `torch.distributed.tensor.DTensorSpec`
 */
export const DTensorSpec: Interned<
  [mesh: MeshLayout, placements: readonly Placement[], options: DTensorSpecOptions],
  DTensorSpec
> = interned(
  'DTensorSpec',
  (mesh: MeshLayout, placements: readonly Placement[], options: DTensorSpecOptions) => {
    checkMesh('DTensorSpec', mesh);
    const { tensorMeta, shardOrder } = checkTensorMeta('DTensorSpec', options);
    const wrapped = checkPlacements('DTensorSpec', mesh, placements, tensorMeta.shape.length);
    if (shardOrder) checkShardOrder('DTensorSpec', mesh, wrapped, shardOrder);
    return internSpec(mesh, wrapped, shardOrder ?? [], tensorMeta);
  },
  Spec.prototype,
);

/** @throws ArgumentError unless the options have a tensor's metadata */
function checkTensorMeta(op: string, options: DTensorSpecOptions): DTensorSpecOptions {
  const { tensorMeta } = optionsOf(op, options, 'tensorMeta shardOrder');
  const expected =
    'an object of shape, strides and dtype, all of the whole tensor, or TensorMeta(shape, ' +
    'stride, dtype)';
  if (typeof tensorMeta !== 'object' || tensorMeta === null)
    throw unexpected(op, 'tensorMeta', expected, tensorMeta);
  if (!(tensorMeta instanceof FrozenMeta))
    checkMetaFields(op, tensorMeta, { strides: 'tensorMeta.strides', dtype: 'tensorMeta.dtype' });
  return options;
}

/** The specs of one mesh by key. They are collected with the mesh, and their caches with them. */
interface SpecTable {
  /** The first mesh object with its id; all specs refer to it. */
  readonly mesh: MeshLayout;
  readonly specs: Map<string, Spec>;
}

const tables = new WeakMap<MeshLayout, SpecTable>();
const tablesById = new Map<number, WeakRef<SpecTable>>();
let nextId = 1;

function tableOf(mesh: MeshLayout): SpecTable {
  let table = tables.get(mesh);
  if (table === undefined) {
    table = tablesById.get(mesh.id)?.deref() ?? { mesh, specs: new Map() };
    tables.set(mesh, table);
    tablesById.set(mesh.id, new WeakRef(table));
  }
  return table;
}

/**
 * The interned spec for placements that are checked and have no negative dims.
 *
 * @param order the shard order of dims that several mesh dims shard; by default ascending
 * @internal
 */
export function internSpec(
  mesh: MeshLayout,
  placements: readonly Placement[],
  order: ShardOrder,
  meta: TensorMeta,
): DTensorSpec {
  const shared = hasSharedTensorDim(placements)
    ? canonicalOrder(mesh, placements, order, meta.shape.length)
    : null;
  let key = meta instanceof FrozenMeta ? meta.key : metaKey(meta);
  for (let i = 0; i < placements.length; i++) key += `,${(placements[i] as Placement).id}`;
  if (shared !== null) key += `|${shared.join(';')}`;
  const table = tableOf(mesh);
  let spec = table.specs.get(key);
  if (spec === undefined) {
    const tensorMeta =
      meta instanceof FrozenMeta ? meta : new FrozenMeta(meta.shape, meta.strides, meta.dtype);
    const fullOrder = shared ?? canonicalOrder(mesh, placements, order, meta.shape.length);
    spec = new Spec(
      nextId++,
      table.mesh,
      frozen(placements),
      Object.freeze(fullOrder.map(frozen)),
      tensorMeta,
    );
    table.specs.set(key, spec);
  }
  return spec;
}

/** Whether several mesh dims shard one tensor dim; only then the shard order matters. @internal */
export function hasSharedTensorDim(placements: readonly Placement[]): boolean {
  for (let i = 1; i < placements.length; i++) {
    const placement = placements[i] as Placement;
    if (placement.isShard() && placements.indexOf(placement) < i) return true;
  }
  return false;
}

/**
 * Mesh dims of one rank do not shard, so they come first; specs that differ only in their position
 * are equal.
 */
function canonicalOrder(
  mesh: MeshLayout,
  placements: readonly Placement[],
  order: ShardOrder,
  ndim: number,
): ShardOrder {
  const byDim: number[][] = Array.from({ length: ndim }, () => []);
  placements.forEach((placement, meshDim) => {
    if (placement.isShard()) (byDim[placement.dim] as number[]).push(meshDim);
  });
  return byDim.map((meshDims, dim) => {
    if (meshDims.length < 2) return meshDims;
    const given = order[dim] ?? [];
    const sequence = given.length === meshDims.length ? given : meshDims;
    const single = (meshDim: number) => mesh.shape[meshDim] === 1;
    return [...meshDims.filter(single), ...sequence.filter((meshDim) => !single(meshDim))];
  });
}

const NO_ORDER: ShardOrder = Object.freeze([]);

/**
 * The spec of the same tensor in other placements. By default, mesh dims that still shard a dim
 * keep their order and new ones come last, which needs the least communication. @internal
 */
export function placeSpec(
  spec: DTensorSpec,
  placements: readonly Placement[],
  order: ShardOrder | null = null,
): DTensorSpec {
  return internSpec(
    spec.mesh,
    placements,
    order ?? (hasSharedTensorDim(placements) ? keptShardOrder(spec, placements) : NO_ORDER),
    spec.tensorMeta,
  );
}

/** The default shard order of {@link placeSpec}. @internal */
export function keptShardOrder(spec: DTensorSpec, placements: readonly Placement[]): ShardOrder {
  return spec.order.map((meshDims, dim) => {
    const kept = meshDims.filter((meshDim) => placements[meshDim]?.isShard(dim));
    placements.forEach((placement, meshDim) => {
      if (placement.isShard(dim) && !kept.includes(meshDim)) kept.push(meshDim);
    });
    return kept;
  });
}

/** The spec of a tensor that every rank of the mesh holds as a whole. @internal */
export function replicatedSpec(mesh: MeshLayout, meta: TensorMeta): DTensorSpec {
  return internSpec(
    mesh,
    mesh.shape.map(() => Replicate()),
    [],
    meta,
  );
}

/** The spec of the same tensor, replicated. @internal */
export function replicateSpec(spec: DTensorSpec): DTensorSpec {
  return spec.isReplicated() ? spec : replicatedSpec(spec.mesh, spec.tensorMeta);
}

/** Replaces Partial by Replicate. @internal */
export function reducedPlacements(placements: readonly Placement[]): readonly Placement[] {
  return placements.map((placement) => (placement.isPartial() ? Replicate() : placement));
}

/** The spec of the gradient of a tensor: the same, with Partial replaced by Replicate. @internal */
export function gradientSpec(spec: DTensorSpec): DTensorSpec {
  spec.gradient ??= placeSpec(spec, reducedPlacements(spec.placements), spec.order);
  return spec.gradient;
}
