/**
 * Runs decisions on small arrays for all ranks: the local results match the specs of the outputs.
 */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { describe, it } from 'mocha';
import type { AnyOp } from '../../../lib/core/op.js';
import { Partial, type Placement, Replicate, Shard } from '../../../lib/core/placement.js';
import { numelOf, type Shape } from '../../../lib/core/shape.js';
import { planRedistribute } from '../../../lib/dtensor/redistribute/plan.js';
import { meshCoordinates } from '../../../lib/dtensor/spec/shard-geometry.js';
import type { DTensorSpec } from '../../../lib/dtensor/spec/spec.js';
import { fakeMesh, orderBy, specOf } from '../fake-mesh.js';
import { localOf, type Ranks, reduceAll, runStep, type Values } from '../simulated-ranks.js';
import { add, decisionOf, matmul, mean, relu } from './toy-ops.js';

type Compute = (...inputs: Values[]) => Values;

const at = ({ shape, data }: Values, row: number, column: number) =>
  data[row * (shape[1] as number) + column] as number;

function table(
  rows: number,
  columns: number,
  value: (row: number, column: number) => number,
): Values {
  return {
    shape: [rows, columns],
    data: Array.from({ length: rows * columns }, (_, i) =>
      value(Math.floor(i / columns), i % columns),
    ),
  };
}

const computeMatmul: Compute = (a, b) =>
  table(a.shape[0] as number, b.shape[1] as number, (row, column) => {
    let sum = 0;
    for (let k = 0; k < (a.shape[1] as number); k++) sum += at(a, row, k) * at(b, k, column);
    return sum;
  });

/** A size of 1 is stretched. */
const computeAdd: Compute = (a, b) => {
  const sizes = [0, 1].map((dim) => (a.shape[dim] === 1 ? b.shape[dim] : a.shape[dim]) as number);
  const pick = (values: Values, row: number, column: number) =>
    at(values, values.shape[0] === 1 ? 0 : row, values.shape[1] === 1 ? 0 : column);
  return table(
    sizes[0] as number,
    sizes[1] as number,
    (row, column) => pick(a, row, column) + pick(b, row, column),
  );
};

const computeRelu: Compute = (x) => ({
  shape: x.shape,
  data: x.data.map((value) => Math.max(0, value)),
});

const computeMean: Compute = (x) => {
  const [rows, columns] = x.shape as [number, number];
  const data = Array.from(
    { length: columns },
    (_, column) =>
      Array.from({ length: rows }, (_, row) => at(x, row, column)).reduce((a, b) => a + b, 0) /
      rows,
  );
  return { shape: [columns], data };
};

interface Call {
  op: AnyOp;
  compute: Compute;
  specs: readonly DTensorSpec[];
  /** Whether the first input is also written to. */
  inPlace: boolean;
}

/** Random placements and orders of tensors of these shapes, sums being the only reduction. */
function calls(
  op: AnyOp,
  compute: Compute,
  shapes: fc.Arbitrary<readonly Shape[]>,
): fc.Arbitrary<Call> {
  const meshShapes = fc.array(fc.integer({ min: 1, max: 3 }), { minLength: 1, maxLength: 3 });
  return fc.tuple(meshShapes, shapes).chain(([ranks, all]) => {
    const mesh = fakeMesh(ranks);
    const each = all.map((shape) => {
      const placement: fc.Arbitrary<Placement> = fc.oneof(
        fc.constant(Replicate()),
        { weight: 2, arbitrary: fc.integer({ min: 0, max: shape.length - 1 }).map(Shard) },
        fc.constant(Partial()),
      );
      const placements = fc.array(placement, { minLength: ranks.length, maxLength: ranks.length });
      const sequence = fc.shuffledSubarray([...ranks.keys()], { minLength: ranks.length });
      return fc
        .tuple(placements, sequence)
        .map(([own, order]) => specOf(mesh, shape, own, orderBy(own, shape, order)));
    });
    return fc
      .tuple(fc.tuple(...each), fc.boolean())
      .map(([specs, inPlace]) => ({ op, compute, specs, inPlace }));
  });
}

/** Random partial values by rank, equal for ranks that replicate, and their sum. */
function distribute(spec: DTensorSpec, seed: number): { ranks: Ranks; whole: Values } {
  const terms = new Map<string, Values>();
  let state = seed;
  const ranks = meshCoordinates(spec.mesh).map((coordinate) => {
    const key = coordinate.filter((_, meshDim) => spec.placements[meshDim]?.isPartial()).join();
    let term = terms.get(key);
    if (term === undefined)
      terms.set(
        key,
        (term = {
          shape: spec.shape,
          data: Array.from(
            { length: numelOf(spec.shape) },
            () => ((state = (state * 16807) % 2147483647) % 9) - 4,
          ),
        }),
      );
    return localOf(spec, term, coordinate);
  });
  return { ranks, whole: reduceAll('sum', [...terms.values()]) };
}

/** The values of all ranks, reduced where the spec is Partial. */
function reduced(spec: DTensorSpec, ranks: Ranks): Ranks {
  let now = ranks;
  spec.placements.forEach((placement, meshDim) => {
    if (placement.isPartial())
      now = runStep(
        { kind: 'allReduce', meshDim, reduceOp: placement.reduceOp, after: spec },
        spec.mesh.shape,
        now,
      );
  });
  return now;
}

function checkCall({ op, compute, specs, inPlace }: Call): void {
  const into = inPlace ? (specs[0] as DTensorSpec) : null;
  // Replicate cannot become Partial, so a Partial target takes Partial inputs only.
  if (into?.placements.some((placement) => placement.isPartial())) return;
  const { inputs, outputs } = decisionOf(op, specs, {}, into);
  const given = specs.map((spec, i) => distribute(spec, i + 11));
  const operands = specs.map((spec, i) =>
    planRedistribute(spec, inputs[i] as DTensorSpec).reduce(
      (ranks, step) => runStep(step, spec.mesh.shape, ranks),
      given[i]?.ranks as Ranks,
    ),
  );
  const output = outputs[0] as DTensorSpec;
  if (into !== null) assert.equal(output, into);
  const coordinates = meshCoordinates(output.mesh);
  const results = reduced(
    output,
    coordinates.map((_, rank) => compute(...operands.map((ranks) => ranks[rank] as Values))),
  );
  const whole = compute(...given.map((input) => input.whole));
  coordinates.forEach((coordinate, rank) => {
    const [held, wanted] = [results[rank] as Values, localOf(output, whole, coordinate)];
    assert.deepEqual(held.shape, wanted.shape);
    wanted.data.forEach((x, i) =>
      assert.ok(
        Math.abs(x - (held.data[i] as number)) < 1e-9,
        `rank ${rank}, element ${i}: ${held.data[i]} instead of ${x}`,
      ),
    );
  });
}

describe('the local results of a decision form the whole result', function () {
  this.timeout(120_000);
  const size = fc.integer({ min: 1, max: 7 });
  const product = fc.tuple(size, size, size).map(([m, k, n]) => [
    [m, k],
    [k, n],
  ]);
  const stretched = fc
    .tuple(size, size, fc.boolean(), fc.boolean())
    .map(([m, n, rows, columns]) => [
      [m, n],
      [rows ? m : 1, columns ? n : 1],
    ]);
  const single = fc.tuple(size, size).map((shape) => [shape]);
  const outOfPlace = (each: fc.Arbitrary<Call>) =>
    each.map((call) => ({ ...call, inPlace: false }));

  it('of a product', () =>
    fc.assert(fc.property(outOfPlace(calls(matmul, computeMatmul, product)), checkCall), {
      numRuns: 400,
    }));
  it('of a sum that broadcasts, in place or not', () =>
    fc.assert(fc.property(calls(add, computeAdd, stretched), checkCall), { numRuns: 400 }));
  it('of a function of each element', () =>
    fc.assert(fc.property(calls(relu, computeRelu, single), checkCall), { numRuns: 200 }));
  it('of a mean', () =>
    fc.assert(fc.property(outOfPlace(calls(mean, computeMean, single)), checkCall), {
      numRuns: 200,
    }));
});
