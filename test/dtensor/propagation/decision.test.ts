/**
 * Decisions about tensors that are overwritten, and about ops without a fitting strategy.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'mocha';
import { ShapeError, ShardingError } from '../../../lib/core/errors.js';
import { Partial, Replicate, Shard } from '../../../lib/core/placement.js';
import type { DTensorSpec } from '../../../lib/dtensor/spec/spec.js';
import { fakeMesh, specOf } from '../fake-mesh.js';
import {
  add,
  cumsum,
  decisionOf,
  step,
  variance,
  withDecomposition,
  withoutRule,
} from './toy-ops.js';

const [R, S0, S1, P] = [Replicate(), Shard(0), Shard(1), Partial()];
const mesh = fakeMesh([4], ['tp']);
const grid = fakeMesh([2, 4], ['dp', 'tp']);
const texts = (specs: readonly (DTensorSpec | null)[]) =>
  specs.map((spec) => spec && `[${spec.placements.join(', ')}]`);

describe('an overwritten tensor', () => {
  it('keeps its placements, and inputs are redistributed to them', () => {
    const into = specOf(mesh, [8, 8], [S0]);
    const decision = decisionOf(add, [into, specOf(mesh, [8, 8], [S1])], {}, into);
    assert.deepEqual([decision.inputs, decision.outputs], [[into, into], [into]]);
    const scalar = specOf(mesh, [1, 8], [S0]);
    assert.deepEqual(decisionOf(add, [scalar, specOf(mesh, [1, 8], [R])], {}, scalar).outputs, [
      scalar,
    ]);
  });

  it('stays replicated even if an operand is sharded', () => {
    const into = specOf(mesh, [8, 8], [R]);
    assert.deepEqual(texts(decisionOf(add, [into, specOf(mesh, [8, 8], [S1])], {}, into).inputs), [
      '[Replicate()]',
      '[Replicate()]',
    ]);
  });

  it('is refused if no strategy keeps its placements', () => {
    const into = specOf(mesh, [8, 8], [S0]);
    assert.throws(
      () => decisionOf(cumsum, [into], {}, into),
      (error: unknown) =>
        error instanceof ShardingError &&
        error.message.startsWith(
          'cumsum: the result is written into float32[8, 8] on mesh (tp: 4): [Shard(0)], but no strategy keeps its placements.',
        ) &&
        error.message.includes('Use the out-of-place op'),
    );
    assert.throws(
      () => decisionOf(withoutRule, [into], {}, into),
      /the op has no sharding rule and only runs on replicated tensors/,
    );
    const terms = specOf(mesh, [8, 8], [P]);
    assert.throws(
      () => decisionOf(add, [terms, specOf(mesh, [8, 8], [R])], {}, terms),
      ShardingError,
    );
  });

  it('is refused if the result has another shape', () => {
    const into = specOf(mesh, [8, 1], [S0]);
    assert.throws(() => decisionOf(add, [into, specOf(mesh, [8, 8], [S0])], {}, into), ShapeError);
  });

  it('may be an input, which is never redistributed', () => {
    const [sharded, whole] = [specOf(mesh, [8, 8], [S1]), specOf(mesh, [8, 8], [R])];
    assert.deepEqual(decisionOf(step, [sharded, sharded, whole]).inputs, [
      sharded,
      sharded,
      sharded,
    ]);
    assert.throws(
      () => decisionOf(step, [sharded, whole, whole]),
      /step: it overwrites input 0 and input 1, but no strategy keeps its placements/,
    );
  });
});

describe('an op without a fitting strategy', () => {
  it('runs on replicated tensors', () => {
    const decision = decisionOf(withoutRule, [specOf(grid, [8, 8], [S0, P])]);
    assert.deepEqual([decision.fallback, decision.needsRedistribute], ['replicate', true]);
    assert.deepEqual(
      [texts(decision.inputs), texts(decision.outputs)],
      [['[Replicate(), Replicate()]'], ['[Replicate(), Replicate()]']],
    );
    assert.equal(decisionOf(withoutRule, [specOf(grid, [8, 8], [R, R])]).fallback, 'none');
  });

  it('runs as its decomposition if it has one', () => {
    const x = specOf(mesh, [8, 8], [S0]);
    const decision = decisionOf(withDecomposition, [x]);
    assert.deepEqual(
      [decision.fallback, decision.needsRedistribute, decision.inputs, decision.outputs],
      ['decompose', false, [x], []],
    );
    assert.deepEqual(decisionOf(withDecomposition, [x], {}, x).outputs, [x]);
    assert.equal(decisionOf(withDecomposition, [specOf(mesh, [8, 8], [R])]).fallback, 'none');
  });

  it('decomposes, if its rule allows, where shards would have to move', () => {
    assert.equal(decisionOf(variance, [specOf(mesh, [8, 8], [S0])]).fallback, 'decompose');
    assert.equal(decisionOf(variance, [specOf(mesh, [8, 8], [S1])]).fallback, 'none');
    assert.deepEqual(texts(decisionOf(variance, [specOf(mesh, [8, 8], [P])]).inputs), [
      '[Replicate()]',
    ]);
  });

  it('reduces Partial inputs that its decomposition reads repeatedly, and keeps Shard', () => {
    const decision = decisionOf(variance, [specOf(grid, [8, 8], [S0, P])]);
    assert.deepEqual(
      [decision.fallback, decision.needsRedistribute, texts(decision.inputs)],
      ['decompose', true, ['[Shard(0), Replicate()]']],
    );
    assert.equal(
      decisionOf(withDecomposition, [specOf(grid, [8, 8], [S0, P])]).needsRedistribute,
      false,
    );
  });
});
