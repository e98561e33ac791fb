/**
 * The ops redistribute, toLocal and fromLocal with their gradients, and the creation of distributed
 * tensors from local shards.
 */

import { aliasOf } from '../core/alias-of.js';
import { isAsynchronous, markAsynchronous } from '../core/asynchronous.js';
import { withPurpose } from '../core/call-context.js';
import { atCallSite } from '../core/call-site.js';
import type { Device } from '../core/device.js';
import { dispatchOne } from '../core/dispatch.js';
import type { DType } from '../core/dtype.js';
import { ShardingError } from '../core/errors.js';
import { defineOp, type Op } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import { type Placement, Replicate, Shard } from '../core/placement.js';
import { contiguousStrides, type Shape, sameShape } from '../core/shape.js';
import type { Sharding } from '../core/sharding.js';
import { Tensor } from '../core/tensor.js';
import type { DeviceMesh } from '../distributed/device-mesh/device-mesh.js';
import { broadcastTensor } from '../ops/collectives.js';
import { withCause } from './redistribute/policy.js';
import { redistributeLocal } from './redistribute/run.js';
import { checkLocalShape, LocalShard, localShardOf } from './spec/local-shard.js';
import { shardAt } from './spec/shard-geometry.js';
import {
  type DTensorSpec,
  formatPlacements,
  gradientSpec,
  internSpec,
  reducedPlacements,
  replicatedSpec,
  replicateSpec,
} from './spec/spec.js';

const metaOf = (t: Tensor, spec: DTensorSpec) => [
  { shape: spec.shape, strides: spec.tensorMeta.strides, dtype: spec.dtype, device: t.device },
];

/** The local shard of a tensor. @throws ShardingError for a plain tensor @internal */
export function requireLocalShard(op: string, t: Tensor): LocalShard {
  const shard = localShardOf(t);
  if (shard === null)
    throw new ShardingError(
      `${op}: expected a distributed tensor, got a plain one. Distribute it with ` +
        'distributeTensor or DTensor.fromLocal.',
      { op },
    );
  return shard;
}

const toSpecParams = {
  spec: param.value<DTensorSpec>(),
  /**
   * The spec of the input, for the gradient. A param, because a saved input would keep its memory
   * until backward.
   */
  from: param.value<DTensorSpec>(),
  /** Whether this is a gradient, which may go from Replicate to Partial. */
  backward: param.value<boolean>(),
};
type ToSpec = ParamsOf<typeof toSpecParams>;

const redistributeOp: Op<ToSpec> = defineOp({
  name: 'redistribute',
  inputs: ['t'],
  outputs: ['y'],
  params: toSpecParams,
  doc: 'The same tensor in other placements.',
  traits: ['placement'],
  kernel: null,
  meta: ([t], { spec }) => metaOf(t, spec),
  compute: ([t], { spec, from, backward }) => {
    const { local } = requireLocalShard('redistribute', t);
    if (from === spec) return [createDTensor(aliasOf(local), spec)];
    const text = (): string =>
      `redistribute from ${formatPlacements(from.placements)} to ` +
      `${formatPlacements(spec.placements)}`;
    const moved = withCause(text, () =>
      redistributeLocal(local, from, spec, { partialFromReplicate: backward }),
    );
    return [createDTensor(moved === local ? aliasOf(local) : moved, spec)];
  },
  // Also if nothing moved, because the gradient may have other placements.
  vjp: (ctx, g) => [toSpec(g, gradientSpec(ctx.params.from), true)],
  samples: () => [],
});

const toLocalParams = {
  from: param.value<DTensorSpec>(),
  gradPlacements: param.value<readonly Placement[] | null>(),
};
type ToLocal = ParamsOf<typeof toLocalParams>;

const toLocalOp: Op<ToLocal> = defineOp({
  name: 'toLocal',
  inputs: ['t'],
  outputs: ['y'],
  params: toLocalParams,
  doc: 'The local shard of this rank, as a plain tensor on the same memory.',
  traits: ['placement'],
  kernel: null,
  meta: ([t]) => {
    const { local } = requireLocalShard('toLocal', t);
    return [
      { shape: local.sizes, strides: local.strides, dtype: local.dtype, device: local.device },
    ];
  },
  compute: ([t]) => {
    const shard = requireLocalShard('toLocal', t).local;
    const local = aliasOf(shard);
    if (isAsynchronous(shard)) markAsynchronous(local, true);
    local.versionCounter = t.sharedVersion();
    return [local];
  },
  vjp: (ctx, g) => {
    const { from: spec, gradPlacements } = ctx.params;
    const given =
      gradPlacements === null
        ? gradientSpec(spec)
        : internSpec(spec.mesh, gradPlacements, spec.order, spec.tensorMeta);
    checkLocalShape(
      'toLocal, in backward',
      g as Tensor,
      given,
      'gradPlacements are the placements of the gradient: Partial() if the gradients of the ' +
        'ranks are to be added.',
    );
    return [dispatchOne(fromLocalOp, [g], { spec: given, check: null })];
  },
  samples: () => [],
});

const fromLocalParams = {
  spec: param.value<DTensorSpec>(),
  /**
   * The text that must be equal on all ranks, for `runCheck`; null without it. The check also gives
   * replicas the values of the first rank of each replicating mesh dim.
   */
  check: param.value<string | null>(),
};
type FromLocal = ParamsOf<typeof fromLocalParams>;

const fromLocalOp: Op<FromLocal> = defineOp({
  name: 'fromLocal',
  inputs: ['t'],
  outputs: ['y'],
  params: fromLocalParams,
  doc: 'A distributed tensor whose local shard is a plain tensor, on the same memory.',
  traits: ['placement'],
  kernel: null,
  meta: ([t], { spec }) => metaOf(t, spec),
  compute: ([t], { spec, check }) => {
    if (check !== null)
      return [
        createDTensor(
          atCallSite(() => withPurpose(check, () => firstCopy(t, spec))),
          spec,
        ),
      ];
    const whole = createDTensor(aliasOf(t), spec);
    whole.versionCounter = t.sharedVersion();
    return [whole];
  },
  vjp: (ctx, g) => [toLocalTensor(toSpec(g, gradientSpec(ctx.params.spec), true), null)],
  samples: () => [],
});

/** Broadcasts along replicating mesh dims; a barrier along the others compares the purpose. */
function firstCopy(t: Tensor, spec: DTensorSpec): Tensor {
  const mesh = spec.mesh as DeviceMesh;
  let copy = t;
  spec.placements.forEach((placement, meshDim) => {
    const group = mesh.getGroup(meshDim);
    if (placement.isReplicate()) copy = broadcastTensor(copy, 0, group, 'DTensor.fromLocal');
    else if (group.size > 1)
      group.run('DTensor.fromLocal', {
        kind: 'barrier',
        input: null,
        output: null,
        device: t.device,
      });
  });
  return copy === t ? aliasOf(t) : copy;
}

/** Redistributes a tensor to a spec. @internal */
export function toSpec(t: Tensor, spec: DTensorSpec, backward = false): Tensor {
  return dispatchOne(redistributeOp, [t], {
    spec,
    from: requireLocalShard('redistribute', t).spec,
    backward,
  });
}

/** The local shard as a plain tensor. @internal */
export function toLocalTensor(t: Tensor, gradPlacements: readonly Placement[] | null): Tensor {
  return dispatchOne(toLocalOp, [t], {
    from: requireLocalShard('toLocal', t).spec,
    gradPlacements,
  });
}

/** A distributed tensor over a local shard, with a gradient. @internal */
export function fromLocalTensor(
  local: Tensor,
  spec: DTensorSpec,
  check: string | null = null,
): Tensor {
  return dispatchOne(fromLocalOp, [local], { spec, check });
}

/** A local shard whose methods communicate by the ops of this file. */
class DTensorShard extends LocalShard {
  full(op: string): Tensor {
    const { local, spec } = this;
    const whole = withCause(
      () => op,
      () => redistributeLocal(local, spec, replicateSpec(spec)),
    );
    return whole === local ? aliasOf(local) : whole;
  }

  empty(shape: Shape, dtype: DType, device?: Device): Tensor {
    const { mesh, placements, order } = this.spec;
    const meta = { shape, strides: contiguousStrides(shape), dtype };
    const spec = sameShape(shape, this.spec.shape)
      ? internSpec(mesh, reducedPlacements(placements), order, meta)
      : replicatedSpec(mesh, meta);
    return this.emptyOf(spec, device);
  }

  emptyAround(shape: Shape, dims: readonly (number | null)[], isPartial: boolean): Tensor {
    const { mesh, placements, order, dtype } = this.spec;
    const around = placements.map((own): Placement => {
      const dim = own.isShard() ? dims.indexOf(own.dim) : -1;
      return dim >= 0 ? Shard(dim) : own.isPartial() && isPartial ? own : Replicate();
    });
    const orders = dims.map((dim) => (dim === null ? [] : (order[dim] ?? [])));
    const meta = { shape, strides: contiguousStrides(shape), dtype };
    return this.emptyOf(internSpec(mesh, around, orders, meta));
  }

  private emptyOf(spec: DTensorSpec, device = this.local.device): Tensor {
    const { shape } = shardAt(spec, spec.mesh.getCoordinate());
    return createDTensor(this.local.newEmpty(shape, { dtype: spec.dtype, device }), spec);
  }

  replicated(t: Tensor): Tensor {
    const { mesh } = this.spec;
    const spec = replicatedSpec(mesh, t);
    return fromLocalTensor(mesh.getCoordinate() === null ? t.newEmpty([0]) : t, spec);
  }

  reduced(t: Tensor): Tensor {
    const { spec } = this;
    return spec.placements.some((placement) => placement.isPartial())
      ? toSpec(t, gradientSpec(spec))
      : t;
  }

  whole(t: Tensor): Tensor {
    return toLocalTensor(toSpec(t, replicateSpec(this.spec)), null);
  }

  shard(t: Tensor): Tensor {
    return toLocalTensor(t, null);
  }

  withLocal(local: Tensor): Tensor {
    return createDTensor(local, this.spec);
  }

  gradient(local: Tensor): Tensor {
    return createDTensor(local, gradientSpec(this.spec));
  }

  fit(gradient: Tensor): Tensor {
    const { spec } = this;
    const given = requireLocalShard('backward', gradient).spec;
    if (given === gradientSpec(spec)) return gradient;
    // The strides of the gradient may differ from those of the tensor.
    const wanted = internSpec(
      spec.mesh,
      reducedPlacements(spec.placements),
      spec.order,
      given.tensorMeta,
    );
    return given === wanted ? gradient : toSpec(gradient, wanted, true);
  }

  shardLike(gradient: Tensor, like: Sharding['spec']): Tensor {
    const { mesh, placements, tensorMeta } = this.spec;
    const { mesh: otherMesh, order, placements: wanted } = like as DTensorSpec;
    if (otherMesh !== mesh) return gradient;
    // A dim that is in parts already would have to be divided in another order.
    const isWhole = (dim: number): boolean => !placements.some((each) => each.isShard(dim));
    const needed = placements.map((own, i) => {
      const other = wanted[i] as Placement;
      return own.isReplicate() && other.isShard() && isWhole(other.dim) ? other : own;
    });
    if (needed.every((placement, i) => placement === placements[i])) return gradient;
    return toSpec(gradient, internSpec(mesh, needed, order, tensorMeta), true);
  }
}

/**
 * A distributed tensor over a fresh local shard. It takes over the reference of the shard to its
 * storage.
 *
 * @throws ShardingError if the local tensor does not have the shape of the shard
 * @internal
 */
export function createDTensor(local: Tensor, spec: DTensorSpec): Tensor {
  checkLocalShape('DTensor', local, spec);
  const { shape, strides, dtype } = spec.tensorMeta;
  const whole = new Tensor(shape, strides, 0, dtype, local.device, local.storage, 0, local);
  if (local.storage !== null) local.storage.refs--;
  whole.sharding = new DTensorShard(local, spec);
  return whole;
}
