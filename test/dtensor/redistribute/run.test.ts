/**
 * Redistributions on several ranks: every transition, on meshes of up to three dims, with uneven
 * and empty shards.
 */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { type ReduceOpName, reduceOpNames } from '../../../lib/core/placement.js';
import { numelOf } from '../../../lib/core/shape.js';
import { watchCollectives } from '../../../lib/distributed/process-group/process-group.js';
import { type DeviceMesh, DTensor, DTensorSpec, initDeviceMesh } from '../../../lib/distributed.js';
import { toSpec } from '../../../lib/dtensor/ops.js';
import { planRedistribute } from '../../../lib/dtensor/redistribute/plan.js';
import { mergeSteps } from '../../../lib/dtensor/redistribute/run.js';
import { isCollective } from '../../../lib/dtensor/redistribute/steps.js';
import { gradientSpec, replicateSpec } from '../../../lib/dtensor/spec/spec.js';
import {
  bfloat16,
  type DType,
  float32,
  float64,
  int32,
  int64,
  type Tensor,
  tensor,
} from '../../../lib/index.js';
import { reusedRanks } from '../../distributed/support/reused-ranks.js';
import { stepped, transposed } from '../../every-op/differentiable.js';
import { type SpecPair, specPairs } from '../fake-mesh.js';
import { expectedRanks, localOf, termsOf, type Values } from '../simulated-ranks.js';

const WORLD = 8;
const layouts = [(t: Tensor) => t, transposed, stepped];

interface Case {
  readonly pair: SpecPair;
  readonly dtype: DType;
  readonly layout: number;
}

function casesOf(dtypes: readonly DType[], reduceOps: readonly ReduceOpName[]): fc.Arbitrary<Case> {
  const pairs = specPairs({
    leastRanks: 1,
    mostRanks: 4,
    mostMeshDims: 3,
    mostSize: 7,
    reduceOps: [...reduceOps],
  }).filter(({ from }) => numelOf(from.mesh.shape) <= WORLD);
  return fc.record({
    pair: pairs,
    dtype: fc.constantFrom(...dtypes),
    layout: fc.nat(layouts.length - 1),
  });
}

/** The same spec on a mesh that has ranks. */
function onMesh(mesh: DeviceMesh, spec: DTensorSpec, dtype: DType): DTensorSpec {
  return DTensorSpec(mesh, spec.placements, {
    tensorMeta: { ...spec.tensorMeta, dtype },
    shardOrder: spec.order,
  });
}

function tensorOf({ shape, data }: Values, dtype: DType): Tensor {
  return tensor([...data], { dtype }).reshape(shape);
}

async function assertHolds(t: Tensor, { shape, data }: Values, what: string): Promise<void> {
  assert.deepEqual(t.shape, shape, what);
  const values = await t.read();
  const scale = t.dtype === bfloat16 ? 1e-2 : 1e-6;
  data.forEach((x, i) =>
    assert.ok(
      Math.abs(Number(values[i]) - x) <= scale * Math.max(1, Math.abs(x)),
      `${what}: element ${i} is ${values[i]}, not ${x}`,
    ),
  );
}

/** How many collectives a call gives to groups. */
function countCollectives<T>(fn: () => T): [T, number] {
  let count = 0;
  const stop = watchCollectives(() => count++);
  try {
    return [fn(), count];
  } finally {
    stop();
  }
}

async function checkCase(one: Case, gradients: boolean): Promise<void> {
  const { pair, dtype, layout } = one;
  const mesh = initDeviceMesh('cpu', pair.from.mesh.shape);
  const [from, to] = [onMesh(mesh, pair.from, dtype), onMesh(mesh, pair.to, dtype)];
  const coordinate = mesh.getCoordinate();
  const terms = termsOf(from);
  const what = `${from} in layout ${layout} to ${to}`;
  if (coordinate === null) {
    const outside = new DTensor(tensor([], { dtype }), from);
    assert.deepEqual(toSpec(outside, to).toLocal().shape, [0], what);
    return;
  }
  const local = (layouts[layout] as (t: Tensor) => Tensor)(
    tensorOf(localOf(from, terms(coordinate), coordinate), dtype),
  );
  const source = new DTensor(local, from, { requiresGrad: gradients });
  const [result, collectives] = countCollectives(() => toSpec(source, to));
  assert.equal(result._spec, to, what);
  assert.equal(
    collectives,
    mergeSteps(planRedistribute(from, to)).filter(({ step }) => isCollective(step)).length,
    `collectives: ${what}`,
  );
  const place = coordinate.reduce((index, at, dim) => index * (mesh.shape[dim] as number) + at, 0);
  await assertHolds(result.toLocal(), expectedRanks({ from, to }, terms)[place] as Values, what);
  const whole = expectedRanks({ from, to: replicateSpec(from) }, terms)[place] as Values;
  await assertHolds(source.fullTensor(), whole, `whole of ${what}`);
  if (gradients) await checkGradient(source, result, what);
}

/** The gradient has the placements of the source, with Replicate in place of Partial. */
async function checkGradient(source: Tensor, result: Tensor, what: string): Promise<void> {
  const { mesh, tensorMeta } = result._spec;
  const numbers = Array.from({ length: numelOf(tensorMeta.shape) }, (_, i) => (i % 7) - 3);
  const given = DTensor.fromLocal(
    tensorOf({ shape: tensorMeta.shape, data: numbers }, tensorMeta.dtype),
    mesh as DeviceMesh,
  );
  result.backward(given);
  const grad = source.grad as Tensor;
  assert.deepEqual(grad.placements, gradientSpec(source._spec).placements, `gradient of ${what}`);
  await assertHolds(
    grad.fullTensor(),
    { shape: tensorMeta.shape, data: numbers },
    `gradient of ${what}`,
  );
}

describe('redistribute on several ranks', function () {
  this.timeout(120_000);
  const ranks = reusedRanks(WORLD);
  const runs = Number(process.env['SHARDWISE_TEST_RUNS'] ?? 150);
  const seed = Number(process.env['SHARDWISE_TEST_SEED'] ?? Date.now() % 1e6);

  const checkAll = (cases: fc.Arbitrary<Case>, gradients: boolean): Promise<void[]> => {
    const sample = fc.sample(cases, { numRuns: runs, seed });
    return ranks.run(async (rank) => {
      for (const [i, one] of sample.entries()) {
        await checkCase(one, gradients).catch((error: Error) => {
          throw new Error(
            `rank ${rank}, case ${i} of SHARDWISE_TEST_SEED=${seed}: ${error.message}`,
            { cause: error },
          );
        });
      }
    });
  };

  it('gives every rank its shard with the planned collectives, and redistributes the gradient back', () =>
    checkAll(casesOf([float32, float64], ['sum', 'avg']), true));

  it('works for every reduction', () => checkAll(casesOf([float64], reduceOpNames), true));

  it('works for other dtypes', () =>
    checkAll(casesOf([int64, int32, bfloat16], ['sum', 'max', 'min']), false));
});
