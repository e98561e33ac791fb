/**
 * Distributes tensors in random placements, and compares the shards of ranks with one device.
 */
import assert from 'node:assert/strict';
import { contiguousStrides } from '../../lib/core/shape.js';
import {
  type DeviceMesh,
  DTensor,
  DTensorSpec,
  Partial,
  type Placement,
  Replicate,
  Shard,
} from '../../lib/distributed.js';
import { shardAt } from '../../lib/dtensor/spec/shard-geometry.js';
import { bfloat16, bool, float16, float32, type Tensor, uint8 } from '../../lib/index.js';
import type { Rng } from '../fuzz/rng.js';
import { orderBy } from './fake-mesh.js';

/** Random placements that the tensor can have, and a random shard order. */
export function drawSpec(
  rng: Rng,
  mesh: DeviceMesh,
  t: Tensor,
  { partial = true } = {},
): DTensorSpec {
  const terms = partial && t.dtype !== bool && t.dtype !== uint8;
  const placements = mesh.shape.map((): Placement => {
    const roll = rng.unit();
    if (t.ndim > 0 && roll < 0.55) return Shard(rng.int(0, t.ndim - 1));
    return terms && roll < 0.75 ? Partial() : Replicate();
  });
  const sequence = mesh.shape.map((_, meshDim) => meshDim);
  if (rng.chance(0.5)) sequence.reverse();
  const tensorMeta = { shape: t.shape, strides: contiguousStrides(t.shape), dtype: t.dtype };
  return DTensorSpec(mesh, placements, {
    tensorMeta,
    shardOrder: orderBy(placements, t.shape, sequence),
  });
}

/**
 * Factors of terms by the number of ranks: every sum of some of them times a number is exact, and
 * all together are 1.
 */
const factors: Record<number, readonly number[]> = {
  1: [1],
  2: [2, -1],
  3: [1, -1, 1],
  4: [-1, 1, 0, 1],
};

/**
 * What this rank's term is of the whole: times a small factor, so that the reduction gives back the
 * very bits.
 */
function termOf(t: Tensor, mesh: DeviceMesh, placements: readonly Placement[]): Tensor {
  const coordinate = mesh.getCoordinate() as readonly number[];
  let factor = 1;
  let first = true;
  placements.forEach((placement, meshDim) => {
    if (!placement.isPartial()) return;
    factor *= factors[mesh.shape[meshDim] as number]?.[coordinate[meshDim] as number] as number;
    first &&= coordinate[meshDim] === 0;
  });
  if (factor === 1 && first) return t;
  const term = t.mul(factor);
  return t.dtype.isFloatingPoint ? term.where(t.isfinite(), first ? t : t.zerosLike()) : term;
}

/** The distributed tensor of this spec whose whole is `t`. */
export function placed(t: Tensor, spec: DTensorSpec, requiresGrad = false): Tensor {
  const mesh = spec.mesh as DeviceMesh;
  const { shape, offsets } = shardAt(spec, mesh.getCoordinate());
  let local = termOf(t.detach(), mesh, spec.placements);
  shape.forEach((size, dim) => {
    local = local.narrow(dim, offsets[dim] as number, size);
  });
  return new DTensor(local.clone().contiguous(), spec, { requiresGrad });
}

/**
 * What a float32 result may differ by, as PyTorch's tests have it; the others as their precision.
 */
function toleranceOf({ dtype }: Tensor): { rtol: number; atol: number } {
  if (!dtype.isFloatingPoint) return { rtol: 0, atol: 0 };
  if (dtype === bfloat16) return { rtol: 1.6e-2, atol: 1e-5 };
  if (dtype === float16) return { rtol: 1e-3, atol: 1e-5 };
  return dtype === float32 ? { rtol: 1.3e-6, atol: 1e-5 } : { rtol: 1e-10, atol: 1e-10 };
}

/**
 * @throws AssertionError unless the whole of a distributed tensor is `expected`; all ranks call it
 */
export async function assertWhole(actual: Tensor, expected: Tensor, what: string): Promise<void> {
  assert.deepEqual([actual.shape, actual.dtype], [expected.shape, expected.dtype], what);
  const whole = actual.sharding === null ? actual : actual.fullTensor();
  const [given, wanted] = await Promise.all([whole.read(), expected.read()]);
  const { rtol, atol } = toleranceOf(expected);
  for (let i = 0; i < wanted.length; i++) {
    const [x, y] = [Number(given[i]), Number(wanted[i])];
    if (
      x === y ||
      (Number.isNaN(x) && Number.isNaN(y)) ||
      Math.abs(x - y) <= atol + rtol * Math.abs(y)
    )
      continue;
    assert.fail(
      `${what}: element ${i} of [${expected.shape}] is ${x}, not ${y}${actual.sharding === null ? '' : `; placed as ${actual.sharding.spec}`}`,
    );
  }
}
