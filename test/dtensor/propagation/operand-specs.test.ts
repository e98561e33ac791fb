/**
 * The shard order of the inputs and results of an op.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'mocha';
import { Replicate, Shard } from '../../../lib/core/placement.js';
import { fakeMesh, specOf } from '../fake-mesh.js';
import { add, decisionOf, matmul, relu, step } from './toy-ops.js';

const [R, S0, S1] = [Replicate(), Shard(0), Shard(1)];
const grid = fakeMesh([2, 4], ['dp', 'tp']);

describe('the shard order of operands', () => {
  const tensorParallelFirst = [[1, 0]];

  it('propagates from inputs to results', () => {
    const x = specOf(grid, [16, 8], [S0, S0], tensorParallelFirst);
    const decision = decisionOf(relu, [x]);
    assert.deepEqual(
      [decision.needsRedistribute, decision.outputs[0]?.order],
      [false, [[1, 0], []]],
    );
  });

  it('is that of the larger one for linked inputs', () => {
    const [large, small] = [
      specOf(grid, [16, 64], [S0, S0], tensorParallelFirst),
      specOf(grid, [16, 1], [S0, S0]),
    ];
    for (const inputs of [
      [large, small],
      [small, large],
    ]) {
      const decision = decisionOf(add, inputs);
      assert.deepEqual(
        decision.inputs.map((spec) => spec?.order[0]),
        [
          [1, 0],
          [1, 0],
        ],
      );
      assert.deepEqual([decision.needsRedistribute, decision.outputs[0]?.order[0]], [true, [1, 0]]);
    }
  });

  it('links different dims of the inputs of a product', () => {
    const [a, b] = [
      specOf(grid, [16, 16], [S1, S1], [[], [1, 0]]),
      specOf(grid, [16, 16], [S0, S0], tensorParallelFirst),
    ];
    assert.equal(decisionOf(matmul, [a, b]).needsRedistribute, false);
    assert.equal(decisionOf(matmul, [a, specOf(grid, [16, 16], [S0, S0])]).needsRedistribute, true);
  });

  it('is that of an overwritten tensor', () => {
    const [into, other] = [
      specOf(grid, [16, 8], [S0, S0]),
      specOf(grid, [16, 8], [S0, S0], tensorParallelFirst),
    ];
    const decision = decisionOf(add, [into, other], {}, into);
    assert.deepEqual([decision.inputs, decision.outputs], [[into, into], [into]]);
  });

  it('must not differ between overwritten tensors', () => {
    const specs = [
      specOf(grid, [16, 8], [S0, S0]),
      specOf(grid, [16, 8], [S0, S0], tensorParallelFirst),
      specOf(grid, [16, 8], [R, R]),
    ];
    assert.throws(
      () => decisionOf(step, specs),
      /to have one shard order, got one sharded by dp, then tp and another sharded by tp, then dp/,
    );
  });
});
