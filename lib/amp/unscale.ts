/** Division of gradients by the factor of the loss, and whether all of them are finite. */
import type { Device } from '../core/device.js';
import { float16, float32, float64 } from '../core/dtype.js';
import { ArgumentError } from '../core/errors.js';
import { type GradientShard, gradientShardOf } from '../core/gradient-shards.js';
import { gradOf } from '../core/set-grad.js';
import type { Tensor } from '../core/tensor.js';
import { valueBeside, valueOn } from '../ops/beside.js';
import { allReduceTensor } from '../ops/collectives.js';
import { zeros } from '../ops/factories.js';
import { stack } from '../ops/join.js';

/**
 * Divides the gradients of parameters in place. Returns 1 if an element is infinite or NaN on any
 * rank that shares the step, else 0. Nothing is read.
 *
 * @throws ArgumentError for gradients of float16
 */
export function unscaleGradients(params: readonly Tensor[], scale: Tensor): Tensor {
  const grads = params.map(gradOf);
  for (const grad of grads) if (grad?.dtype === float16) throw halfGradients();
  const inverse = scale.to(float64).reciprocal().to(float32);
  const finite = new Map<Device, Tensor[]>();
  const sharers = new Map<string, GradientShard>();
  for (const [i, p] of params.entries()) {
    const grad = grads[i] as Tensor | null;
    addSharers(sharers, p);
    if (grad === null) continue;
    const all = grad.mul_(valueBeside(inverse, grad)).isfinite().all();
    const here = all.sharding === null ? all : all.sharding.shard(all);
    const flags = finite.get(here.device);
    if (flags === undefined) finite.set(here.device, [here]);
    else flags.push(here);
  }
  const found = [...finite.values()].map((flags) =>
    valueOn(stack(flags).all().logicalNot().to(float32), scale),
  );
  const here = found.reduce(
    (a, b) => a.maximum(b),
    zeros([], { dtype: float32, device: scale.device }),
  );
  return anywhere(here, [...sharers.values()]);
}

/** Ranks without a gradient of a shard take part in the reduction, too. */
function addSharers(to: Map<string, GradientShard>, parameter: Tensor): void {
  const group = parameter.sharding?.group() ?? null;
  const of =
    group === null ? gradientShardOf(parameter) : { groups: [group], device: parameter.device };
  if (of !== null) to.set([of.device, ...of.groups.map(({ name }) => name)].join(), of);
}

/**
 * The maximum of a flag over all ranks that share a step, also through others. Small groups come
 * first, so a group has what those within it have found.
 */
function anywhere(here: Tensor, sharers: readonly GradientShard[]): Tensor {
  const sizeOf = ({ groups }: GradientShard): number => Math.max(...groups.map(({ size }) => size));
  let found = here;
  for (const { groups, device } of sharers.toSorted((a, b) => sizeOf(a) - sizeOf(b)))
    for (const group of groups) found = allReduceTensor(found.to({ device }), 'max', group);
  return found.to({ device: here.device });
}

const halfGradients = (): ArgumentError =>
  new ArgumentError(
    'GradScaler: gradients of float16 cannot be unscaled; keep the parameters in float32 and use ' +
      'autocast',
  );
