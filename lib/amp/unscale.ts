/** Division of gradients by the factor of the loss, and whether all of them are finite. */
import type { CollectiveGroup } from '../core/collective.js';
import type { Device } from '../core/device.js';
import { float16, float32, float64 } from '../core/dtype.js';
import { ArgumentError } from '../core/errors.js';
import { gradientShardOf } from '../core/gradient-shards.js';
import { gradOf } from '../core/set-grad.js';
import type { Tensor } from '../core/tensor.js';
import { valueBeside, valueOn } from '../ops/beside.js';
import { allReduceTensor } from '../ops/collectives.js';
import { zeros } from '../ops/factories.js';
import { stack } from '../ops/join.js';

/** Flags of gradients that one reduction makes one of, which is equal on all ranks. */
interface Flags {
  /** Whether a gradient is finite. Distributed ones all have the same placements. */
  readonly finite: Tensor[];
  /** The ranks that have the other shards of plain gradients. */
  readonly groups: readonly CollectiveGroup[];
  readonly device: Device;
}

/**
 * Divides the gradients of parameters in place. Returns 1 if an element is infinite or NaN on any
 * rank that shares the step, else 0. Nothing is read.
 *
 * @throws ArgumentError for gradients of float16
 */
export function unscaleGradients(params: readonly Tensor[], scale: Tensor): Tensor {
  const flags = new Map<unknown, Flags>();
  const grads = params.map(gradOf);
  for (const grad of grads) if (grad?.dtype === float16) throw halfGradients();
  const inverse = scale.to(float64).reciprocal().to(float32);
  for (const [i, p] of params.entries()) {
    const grad = grads[i] as Tensor | null;
    const finite = grad?.mul_(valueBeside(inverse, grad)).isfinite().all() ?? null;
    addFlag(flags, p, finite);
  }
  const found = [...flags.values()].map((each) => valueOn(foundIn(each), scale));
  return found.length === 0
    ? zeros([], { dtype: float32, device: scale.device })
    : found.reduce((a, b) => a.maximum(b));
}

/** Ranks without a gradient of a shard take part in the reduction, too. */
function addFlag(flags: Map<unknown, Flags>, parameter: Tensor, finite: Tensor | null): void {
  const shard = gradientShardOf(parameter);
  if (finite === null && shard === null) return;
  const { groups, device } = shard ?? { groups: [], device: parameter.device };
  const key = finite?.sharding?.spec ?? [device, ...groups.map(({ name }) => name)].join();
  const known = flags.get(key) ?? { finite: [], groups, device };
  flags.set(key, known);
  if (finite !== null) known.finite.push(finite);
}

/** 1 if one of the flags is false on any rank, else 0. */
function foundIn({ finite, groups, device }: Flags): Tensor {
  const here = finite.length === 0 ? zeros([], { dtype: float32, device }) : notAll(finite);
  return groups.reduce((found, group) => allReduceTensor(found, 'max', group), here.to({ device }));
}

/** 1 if one of the flags is false, else 0; equal on all ranks of a mesh. */
function notAll(finite: readonly Tensor[]): Tensor {
  const all = stack(finite).all();
  const whole = all.sharding === null ? all : all.sharding.whole(all);
  return whole.logicalNot().to(float32);
}

const halfGradients = (): ArgumentError =>
  new ArgumentError(
    'GradScaler: gradients of float16 cannot be unscaled; keep the parameters in float32 and use ' +
      'autocast',
  );
