/**
 * Driven by the op table: whatever strategy a rule lists, the ranks that follow it hold together
 * what the op gives on whole tensors. On meshes of one dimension with every number of ranks up to
 * four, and on those of two.
 */
import assert from 'node:assert/strict';
import { dispatch } from '../../../lib/core/dispatch.js';
import { type AnyOp, allOps, type Sample } from '../../../lib/core/op.js';
import type { Strategy } from '../../../lib/core/sharding-rule.js';
import '../../../lib/index.js';
import {
  type Call,
  checkStrategies,
  contextOf,
  goTogether,
  strategiesOf,
} from './check-strategies.js';
import { moreSamples } from './samples/index.js';

/** Ops without calls that could be compared, and where their rules are tested. */
const elsewhere: Record<string, string> = {
  toDevice: 'it needs a second device; its rule is that of copy',
  empty: 'its values are not defined; its rule is that of full',
  sgdStep: 'sharded-lists.test.ts',
  adamStep: 'sharded-lists.test.ts',
  sgdStepCapturable: 'sharded-lists.test.ts',
  adamStepCapturable: 'sharded-lists.test.ts',
  foreachAddScalar: 'sharded-lists.test.ts',
  foreachAdd: 'sharded-lists.test.ts',
  foreachMul: 'sharded-lists.test.ts',
  foreachCopy: 'test/dtensor/foreach.test.ts',
};

/** Collectives and changes of placement are what rules are carried out with. */
const ops = allOps().filter(
  (op) =>
    !op.name.includes('::') &&
    !op.traits.includes('collective') &&
    !op.traits.includes('placement'),
);

function samplesOf(op: AnyOp): Sample<object>[] {
  return [...op.samples(), ...(moreSamples[op.name]?.() ?? [])];
}

function callOf(op: AnyOp, { inputs, params }: Sample<object>): Call {
  return { op, inputs, params, expected: dispatch(op, inputs, params) };
}

/** Strategies of two mesh dimensions at once. */
function* pairs(
  { op, inputs, params }: Call,
  outerRanks: number,
  innerRanks: number,
): Generator<[Strategy<object>, Strategy<object>]> {
  for (const outer of strategiesOf(op, inputs, params, contextOf(outerRanks))) {
    for (const inner of strategiesOf(
      op,
      inputs,
      params,
      contextOf(innerRanks, [{ strategy: outer, ranks: outerRanks }]),
    )) {
      if (goTogether(outer, inner)) yield [outer, inner];
    }
  }
}

/** Ops without a rule, which run on replicated tensors only, and why. */
const without: Record<string, string> = {
  nonzero: 'where a row of its result stands depends on the values of all others',
  nonzeroRows: 'it reads what nonzero found, which all ranks have',
  attentionBackwardJoined: 'the gradients of distributed operands have memory of their own',
  fusedPointwise: 'a pass makes it of ops on local shards',
  splitWithSizesCopy: 'its function copies distributed tensors by foreachCopy',
};

describe('the sharding rule of every op in the table', () => {
  it('exists, or there is a reason', () => {
    assert.deepEqual(
      ops
        .filter(
          (op) =>
            op.sharding === null &&
            !op.traits.some((trait) => trait === 'collective' || trait === 'placement'),
        )
        .map((op) => op.name)
        .sort(), // the order of the table depends on which file was imported first
      Object.keys(without).sort(),
    );
  });

  it('has sample calls', () => {
    const untested = ops
      .filter((op) => op.sharding !== null && samplesOf(op).length === 0)
      .map((op) => op.name);
    assert.deepEqual(untested.sort(), Object.keys(elsewhere).sort());
  });

  for (const op of ops) {
    if (op.sharding === null || samplesOf(op).length === 0) continue;

    it(`lists strategies that give the whole result: ${op.name}`, () => {
      for (const sample of samplesOf(op)) {
        const call = callOf(op, sample);
        checkStrategies(call, [], []); // the params of a rank that has everything
        for (const ranks of [1, 2, 3, 4]) {
          for (const strategy of strategiesOf(op, call.inputs, call.params, contextOf(ranks)))
            checkStrategies(call, [strategy], [ranks]);
        }
      }
    });

    it(`lists strategies that combine on two mesh dimensions: ${op.name}`, () => {
      for (const sample of samplesOf(op)) {
        const call = callOf(op, sample);
        for (const strategy of pairs(call, 2, 2)) checkStrategies(call, strategy, [2, 2]);
      }
    });
  }
});
