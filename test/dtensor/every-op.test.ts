/**
 * Driven by the op table: on ranks that hold the operands in any placements, every op and its
 * gradient give what they give on one device. SHARDWISE_TEST_RUNS says how often that is done,
 * SHARDWISE_TEST_SEED with which placements.
 */
import assert from 'node:assert/strict';
import { inspect } from 'node:util';
import { dispatch } from '../../lib/core/dispatch.js';
import { ShardingError } from '../../lib/core/errors.js';
import { type AnyOp, allOps, type Sample } from '../../lib/core/op.js';
import { wrapNumber } from '../../lib/core/tensor.js';
import type { DeviceMesh } from '../../lib/distributed.js';
import { float32, float64, type Tensor } from '../../lib/index.js';
import { reusedRanks } from '../distributed/support/reused-ranks.js';
import type { Rng } from '../fuzz/rng.js';
import { checkSharded, forSamples, runs } from './check-sharded.js';
import { assertWhole, drawSpec, placed } from './random-placements.js';
import { moreSamples } from './sharding-rules/samples/index.js';

const WORLD = 4;

/** Ops whose float32 gradients amplify rounding: compared in float64. */
const illConditioned = new Set([
  'layerNormBackward',
  'rmsNormBackward',
  'prod',
  'cumprod',
  'varMean',
  'tan',
  'pow',
  'digamma',
]);

/** Ops on operands that are distributed; collectives take plain tensors. */
function ops(): AnyOp[] {
  return allOps().filter(
    (op) =>
      !op.name.includes('::') &&
      !op.traits.includes('collective') &&
      !op.traits.includes('placement'),
  );
}

/**
 * Calls of an op that have tensors, and for each whether in float64. Made anew, since every rank
 * has a device of its own.
 */
function samplesOf(op: AnyOp): Sample<object>[] {
  return [...op.samples(), ...(moreSamples[op.name]?.() ?? [])].filter(({ inputs }) =>
    inputs.some((t) => t.storage !== null),
  );
}

const inFloat64 = (t: Tensor): Tensor =>
  t.dtype !== float32
    ? t
    : t.storage === null
      ? wrapNumber(t.scalarValue, float64, t.device)
      : t.to(float64);

interface OpCall {
  readonly op: AnyOp;
  readonly inputs: readonly Tensor[];
  readonly params: object;
}

const checkCall = (
  { op, inputs, params }: OpCall,
  mesh: DeviceMesh,
  rng: Rng,
  what: string,
): Promise<void> =>
  checkSharded(
    { run: (operands) => dispatch(op, operands, params), inputs },
    mesh,
    rng,
    `${what}, ${inspect(params, { depth: 1, breakLength: Infinity })}`,
  );

/**
 * The operand that an in-place method would overwrite: a tensor of the shape and dtype of the
 * result.
 */
function targetOf({ op, inputs, params }: OpCall): number {
  if (op.pointwise === null && op.updates < 0) return -1;
  const { shape, dtype } = dispatch(op, inputs, params)[0] as Tensor;
  return inputs.findLastIndex(
    (t, i) =>
      t.storage !== null &&
      t.dtype === dtype &&
      t.shape.join() === shape.join() &&
      (op.updates < 0 || i === op.updates),
  );
}

/** In place, the tensor keeps its placement, or the call is refused on every rank. */
async function checkInPlace(call: OpCall, mesh: DeviceMesh, rng: Rng, what: string): Promise<void> {
  const at = targetOf(call);
  if (at < 0) return;
  const [expected] = dispatch(call.op, call.inputs, call.params) as [Tensor];
  const specs = call.inputs.map((t, i) =>
    t.storage === null ? null : drawSpec(rng, mesh, t, { partial: i !== at }),
  );
  const inputs = call.inputs.map((t, i) =>
    specs[i] ? placed(t, specs[i] as NonNullable<(typeof specs)[number]>) : t,
  );
  const into = inputs[at] as Tensor;
  const text = `in place, into input ${at} of ${specs.join('; ')}: ${what}`;
  try {
    dispatch(call.op, inputs, call.params, into);
  } catch (error) {
    if (!(error instanceof ShardingError) || specs[at]?.isReplicated()) throw error;
    assert.match(error.message, /may not change placements/, text);
    return;
  }
  assert.equal(into._spec, specs[at], text);
  await assertWhole(into, expected, text);
}

async function checkOp(op: AnyOp, check: typeof checkCall): Promise<void> {
  await forSamples(op.name, samplesOf(op), ({ inputs, params }, mesh, rng, what) => {
    const double = illConditioned.has(op.name) || rng.chance(0.5);
    return check({ op, inputs: double ? inputs.map(inFloat64) : inputs, params }, mesh, rng, what);
  });
}

describe('every op on distributed tensors', function () {
  this.timeout(60_000 * Math.max(1, runs));
  const ranks = reusedRanks(WORLD);

  for (const op of ops()) {
    if (samplesOf(op).length === 0) continue;
    it(`has the values and gradients of one device: ${op.name}`, async () =>
      void (await ranks.run(() => checkOp(op, checkCall))));
    if (op.pointwise === null && op.updates < 0) continue;
    it(`keeps placements when it writes in place: ${op.name}`, async () =>
      void (await ranks.run(() => checkOp(op, checkInPlace))));
  }
});
