/**
 * The choice of a strategy for each mesh dim, and what it makes of inputs and results.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'mocha';
import { float32 } from '../../../lib/core/dtype.js';
import { Partial, Replicate, Shard } from '../../../lib/core/placement.js';
import type { DTensorSpec } from '../../../lib/dtensor/spec/spec.js';
import { fakeMesh, metaOf, specOf } from '../fake-mesh.js';
import { add, decisionOf, embedding, lookUpRows, matmul, mean, relu, toyOp } from './toy-ops.js';

const [R, S0, S1, P] = [Replicate(), Shard(0), Shard(1), Partial()];
const mesh = fakeMesh([4], ['tp']);
const grid = fakeMesh([2, 4], ['dp', 'tp']);
const texts = (specs: readonly (DTensorSpec | null)[]) =>
  specs.map((spec) => spec && `[${spec.placements.join(', ')}]`);

describe('the choice of strategies', () => {
  it('does not redistribute inputs that fit', () => {
    const a = specOf(mesh, [8, 8], [R]);
    const decision = decisionOf(matmul, [a, specOf(mesh, [8, 8], [S1])]);
    assert.equal(decision.needsRedistribute, false);
    assert.equal(decision.inputs[0], a);
    assert.deepEqual(texts(decision.outputs), ['[Shard(1)]']);
    assert.deepEqual([decision.fallback, decision.run], ['none', null]);
  });

  it('leaves replicated tensors replicated', () => {
    const decision = decisionOf(matmul, [
      specOf(grid, [8, 8], [R, R]),
      specOf(grid, [8, 8], [R, R]),
    ]);
    assert.deepEqual(
      [decision.needsRedistribute, texts(decision.outputs)],
      [false, ['[Replicate(), Replicate()]']],
    );
  });

  it('shards a replicated input rather than gathering a sharded one', () => {
    const decision = decisionOf(matmul, [specOf(mesh, [8, 8], [R]), specOf(mesh, [8, 8], [S0])]);
    assert.deepEqual(
      [texts(decision.inputs), texts(decision.outputs)],
      [['[Shard(1)]', '[Shard(0)]'], ['[Partial(sum)]']],
    );
    assert.equal(decision.needsRedistribute, true);
  });

  it('moves the smaller of two inputs that do not fit', () => {
    const decision = decisionOf(add, [specOf(mesh, [64, 64], [S1]), specOf(mesh, [64, 1], [S0])]);
    assert.deepEqual(texts(decision.inputs), ['[Shard(1)]', '[Replicate()]']);
  });

  it('has a strategy for each mesh dim', () => {
    const decision = decisionOf(matmul, [
      specOf(grid, [8, 8], [S0, R]),
      specOf(grid, [8, 8], [R, S1]),
    ]);
    assert.deepEqual(texts(decision.outputs), ['[Shard(0), Shard(1)]']);
    assert.deepEqual(
      decision.strategies.map(({ inputs }) => inputs.join()),
      ['Shard(0),Replicate()', 'Replicate(),Shard(1)'],
    );
  });

  it('keeps Partial if the op is linear, and reduces to Replicate if it is not', () => {
    assert.deepEqual(
      texts(decisionOf(add, [specOf(mesh, [8, 8], [P]), specOf(mesh, [8, 8], [P])]).outputs),
      ['[Partial(sum)]'],
    );
    assert.deepEqual(texts(decisionOf(relu, [specOf(mesh, [8, 8], [P])]).inputs), [
      '[Replicate()]',
    ]);
  });

  it('reduce-scatters a Partial input to match a sharded operand', () => {
    assert.deepEqual(
      texts(decisionOf(add, [specOf(mesh, [8, 8], [P]), specOf(mesh, [8, 8], [S1])]).inputs),
      ['[Shard(1)]', '[Shard(1)]'],
    );
  });

  it('does not newly shard a dim of one element', () => {
    const decision = decisionOf(add, [specOf(mesh, [1, 8], [R]), specOf(mesh, [1, 8], [S1])]);
    assert.deepEqual(texts(decision.inputs), ['[Shard(1)]', '[Shard(1)]']);
    assert.deepEqual(
      texts(decisionOf(add, [specOf(mesh, [1, 8], [S0]), specOf(mesh, [1, 8], [S0])]).outputs),
      ['[Shard(0)]'],
    );
  });

  it('ignores numbers', () => {
    const decision = decisionOf(add, [specOf(mesh, [8, 8], [S1]), null]);
    assert.deepEqual(
      [texts(decision.inputs), texts(decision.outputs)],
      [['[Shard(1)]', null], ['[Shard(1)]']],
    );
  });

  it('passes rules the sharding by earlier mesh dims', () => {
    const outputs = (rows: number) =>
      texts(decisionOf(mean, [specOf(grid, [rows, 3], [S0, S0])]).outputs);
    assert.deepEqual(outputs(16), ['[Partial(avg), Partial(avg)]']);
    assert.deepEqual(
      outputs(12),
      ['[Partial(avg), Shard(0)]'],
      '12 rows are 2 times 6, and 6 are not 4 equal parts',
    );
  });

  it('has the local function of the chosen strategy', () => {
    assert.equal(
      decisionOf(embedding, [specOf(grid, [100, 8], [R, S0]), specOf(grid, [6], [S0, R])]).run,
      lookUpRows,
    );
  });

  it('does not combine reductions that do not commute', () => {
    const toMax = toyOp({
      name: 'toMax',
      shape: () => [[]],
      sharding: {
        strategies: () => [
          { inputs: [S0], outputs: [Partial('max')] },
          { inputs: [S1], outputs: [P] },
        ],
      },
    });
    assert.deepEqual(texts(decisionOf(toMax, [specOf(grid, [8, 8], [S0, S1])]).outputs), [
      '[Partial(max), Partial(max)]',
    ]);
  });

  it('gives the metadata of the whole results', () => {
    const view = { ...relu, view: () => ({ shape: [8, 8], strides: [1, 8], offset: 0 }) };
    assert.deepEqual(
      { ...decisionOf(view, [specOf(mesh, [8, 8], [S0])]).outputs[0]?.tensorMeta },
      { shape: [8, 8], strides: [1, 8], dtype: float32 },
    );
    assert.deepEqual(
      {
        ...decisionOf(matmul, [specOf(mesh, [8, 4], [R]), specOf(mesh, [4, 6], [R])]).outputs[0]
          ?.tensorMeta,
      },
      metaOf([8, 6]),
    );
  });
});
