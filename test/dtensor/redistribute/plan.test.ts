/**
 * Plans of redistribution: correct by simulation of all ranks, shortest by a search over single
 * steps.
 */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { describe, it } from 'mocha';
import { ShardingError } from '../../../lib/core/errors.js';
import { Partial, type ReduceOpName, Replicate, Shard } from '../../../lib/core/placement.js';
import { planCost, stepBytes } from '../../../lib/dtensor/redistribute/cost.js';
import { planRedistribute } from '../../../lib/dtensor/redistribute/plan.js';
import { isCollective, type Step } from '../../../lib/dtensor/redistribute/steps.js';
import { meshCoordinates } from '../../../lib/dtensor/spec/shard-geometry.js';
import { type DTensorSpec, placeSpec } from '../../../lib/dtensor/spec/spec.js';
import { fakeMesh, type SpecPair, specOf, specPairs } from '../fake-mesh.js';
import { expectedRanks, localOf, type Ranks, runStep, termsOf } from '../simulated-ranks.js';

const [R, S0, S1, P] = [Replicate(), Shard(0), Shard(1), Partial()];

function kinds(steps: readonly Step[]): string[] {
  return steps.map((step) => `${step.kind} ${step.meshDim}`);
}

function checkBySimulation(pair: SpecPair): void {
  const terms = termsOf(pair.from);
  let ranks: Ranks = meshCoordinates(pair.from.mesh).map((coordinate) =>
    localOf(pair.from, terms(coordinate), coordinate),
  );
  const steps = planRedistribute(pair.from, pair.to);
  for (const step of steps) ranks = runStep(step, pair.from.mesh.shape, ranks);
  assert.equal(steps.at(-1)?.after ?? pair.from, pair.to);
  const wanted = expectedRanks(pair, terms);
  assert.deepEqual(
    ranks.map(({ shape }) => shape),
    wanted.map(({ shape }) => shape),
  );
  ranks.forEach(({ data }, rank) =>
    data.forEach((x, i) =>
      assert.ok(
        Math.abs(x - (wanted[rank]?.data[i] as number)) < 1e-9,
        `rank ${rank}, element ${i}`,
      ),
    ),
  );
}

/** All single steps from a spec, whether they lead anywhere or not. */
function singleSteps(spec: DTensorSpec): Step[] {
  const dims = [...spec.shape.keys()];
  return spec.placements.flatMap((source, meshDim): Step[] => {
    const after = (target: typeof source) => placeSpec(spec, spec.placements.with(meshDim, target));
    if (source.isReplicate())
      return dims.map((dim) => ({ kind: 'chunk', meshDim, dim, after: after(Shard(dim)) }));
    if (source.isPartial()) {
      const { reduceOp } = source;
      const scatters = dims.map(
        (dim): Step => ({
          kind: 'reduceScatter',
          meshDim,
          reduceOp,
          dim,
          after: after(Shard(dim)),
        }),
      );
      return [{ kind: 'allReduce', meshDim, reduceOp, after: after(R) }, ...scatters];
    }
    if (!source.isShard() || spec.order[source.dim]?.at(-1) !== meshDim) return [];
    const fromDim = source.dim;
    const moves = dims.flatMap((toDim): Step[] =>
      toDim === fromDim
        ? []
        : [{ kind: 'allToAll', meshDim, fromDim, toDim, after: after(Shard(toDim)) }],
    );
    return [{ kind: 'allGather', meshDim, dim: fromDim, after: after(R) }, ...moves];
  });
}

const MANY_BYTES = 1e9;

function weight(step: Step, before: DTensorSpec): number {
  return stepBytes(step, before) + (isCollective(step) ? MANY_BYTES : 0);
}

/** The least weight from one spec to another, over all sequences of single steps. */
function leastWeight(from: DTensorSpec, to: DTensorSpec): number {
  const open = new Map([[from, 0]]);
  const done = new Set<DTensorSpec>();
  for (;;) {
    const [spec, distance] = [...open].reduce((a, b) => (b[1] < a[1] ? b : a));
    if (spec === to) return distance;
    open.delete(spec);
    done.add(spec);
    for (const step of singleSteps(spec)) {
      if (!done.has(step.after))
        open.set(
          step.after,
          Math.min(open.get(step.after) ?? Number.POSITIVE_INFINITY, distance + weight(step, spec)),
        );
    }
  }
}

describe('a plan of redistribution', function () {
  this.timeout(120_000);
  const mesh = fakeMesh([4]);
  const grid = fakeMesh([2, 2], ['dp', 'tp']);

  it('is empty between equal specs', () =>
    assert.deepEqual(planRedistribute(specOf(mesh, [8, 8], [S0]), specOf(mesh, [8, 8], [S0])), []));

  it('has one step for each entry of the table of transitions', () => {
    const table = [
      [R, S0, 'chunk 0'],
      [S0, R, 'allGather 0'],
      [S0, S1, 'allToAll 0'],
      [P, R, 'allReduce 0'],
      [P, S1, 'reduceScatter 0'],
    ] as const;
    for (const [from, to, step] of table)
      assert.deepEqual(
        kinds(planRedistribute(specOf(mesh, [8, 8], [from]), specOf(mesh, [8, 8], [to]))),
        [step],
      );
  });

  it('gathers the inner mesh dim before the outer one, and shards again', () => {
    assert.deepEqual(
      kinds(planRedistribute(specOf(grid, [8, 8], [S0, S0]), specOf(grid, [8, 8], [R, S0]))),
      ['allGather 1', 'allGather 0', 'chunk 1'],
    );
  });

  it('keeps an outer mesh dim if only the inner one changes', () => {
    const tensorParallelFirst = specOf(grid, [8, 8], [S0, S0], [[1, 0]]);
    assert.deepEqual(kinds(planRedistribute(tensorParallelFirst, specOf(grid, [8, 8], [R, S0]))), [
      'allGather 0',
    ]);
  });

  it('makes tensors small before it communicates', () => {
    assert.deepEqual(
      kinds(planRedistribute(specOf(grid, [8, 8], [R, S0]), specOf(grid, [8, 8], [S1, R]))),
      ['chunk 0', 'allGather 1'],
    );
    assert.deepEqual(
      kinds(planRedistribute(specOf(grid, [8, 8], [P, P]), specOf(grid, [8, 8], [R, S0]))),
      ['reduceScatter 1', 'allReduce 0'],
    );
  });

  it('does not communicate along mesh dims of one rank', () => {
    const single = fakeMesh([1, 4]);
    const steps = planRedistribute(
      specOf(single, [8, 8], [S0, S0]),
      specOf(single, [8, 8], [R, S1]),
    );
    assert.deepEqual(kinds(steps), ['relabel 0', 'allToAll 1']);
  });

  it('is cached', () => {
    const [from, to] = [specOf(mesh, [8, 8], [S0]), specOf(mesh, [8, 8], [R])];
    assert.equal(planRedistribute(from, to), planRedistribute(from, to));
  });

  it('gives each rank exactly its shard of the target', () => {
    const pairs = specPairs({
      leastRanks: 1,
      mostRanks: 4,
      mostMeshDims: 3,
      mostSize: 7,
      reduceOps: ['sum', 'avg', 'product', 'min', 'max'] satisfies ReduceOpName[],
    });
    fc.assert(fc.property(pairs, checkBySimulation), { numRuns: 600 });
  });

  it('has the fewest collectives, and among those the fewest bytes', () => {
    const pairs = specPairs({
      leastRanks: 2,
      mostRanks: 4,
      mostMeshDims: 3,
      mostSize: 9,
      reduceOps: ['sum'],
    });
    fc.assert(
      fc.property(pairs, ({ from, to }) => {
        let before = from;
        let total = 0;
        for (const step of planRedistribute(from, to)) {
          total += weight(step, before);
          before = step.after;
        }
        assert.equal(total, leastWeight(from, to));
      }),
      { numRuns: 300 },
    );
  });
});

describe('a redistribution is refused if its target', () => {
  const mesh = fakeMesh([4], ['tp']);

  it('is Partial and the source is Shard or Replicate', () => {
    for (const source of [S0, R]) {
      assert.throws(
        () => planRedistribute(specOf(mesh, [8], [source]), specOf(mesh, [8], [P])),
        (error: unknown) =>
          error instanceof ShardingError &&
          error.message.includes(`mesh dim tp cannot go from ${source} to Partial(sum)`),
      );
    }
  });

  it('is Partial with another reduction', () => {
    assert.throws(
      () => planRedistribute(specOf(mesh, [8], [Partial('max')]), specOf(mesh, [8], [P])),
      /from Partial\(max\) to Partial\(sum\): partial values of one reduction/,
    );
  });

  it('is on another mesh', () => {
    assert.throws(
      () => planRedistribute(specOf(mesh, [8], [S0]), specOf(fakeMesh([4]), [8], [S0])),
      /expected placements on the tensor's own mesh \(tp: 4\)/,
    );
  });

  it('is Partial and the source is Replicate, except for gradients', () => {
    const [from, to] = [specOf(mesh, [8], [R]), specOf(mesh, [8], [P])];
    assert.deepEqual(kinds(planRedistribute(from, to, { partialFromReplicate: true })), [
      'partialFromReplicate 0',
    ]);
    assert.throws(() => planRedistribute(from, to), ShardingError, 'also once the plan is known');
  });
});

describe('the cost of a plan', () => {
  it('counts latencies, and received bytes with padding by kind of step', () => {
    const mesh = fakeMesh([4]);
    const cost = (from: DTensorSpec, to: DTensorSpec) => planCost(from, planRedistribute(from, to));
    const spec = (placement: Parameters<typeof placeSpec>[1][number]) =>
      specOf(mesh, [10, 8], [placement]);
    assert.deepEqual(cost(spec(S0), spec(R)).bytes, { allGather: 3 * 3 * 8 * 4 });
    assert.deepEqual(cost(spec(S0), spec(S1)).bytes, { allToAll: 3 * 3 * 2 * 4 });
    assert.deepEqual(cost(spec(P), spec(S0)).bytes, { reduceScatter: 3 * 3 * 8 * 4 });
    assert.deepEqual(cost(spec(P), spec(R)).bytes, { allReduce: 3 * 2 * 20 * 4 });
    const chunk = cost(spec(R), spec(S0));
    assert.deepEqual([chunk.bytes, chunk.collectives], [{}, 0]);
    assert.ok(chunk.microseconds > 0 && chunk.microseconds < cost(spec(S0), spec(S1)).microseconds);
  });
});
