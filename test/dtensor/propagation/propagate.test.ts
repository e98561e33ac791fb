/**
 * The cache of decisions, and the errors of calls that no decision exists for.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'mocha';
import {
  float32,
  float64,
  getDefaultDtype,
  int64,
  setDefaultDtype,
} from '../../../lib/core/dtype.js';
import { Replicate, Shard } from '../../../lib/core/placement.js';
import { contiguousStrides } from '../../../lib/core/shape.js';
import { propagate } from '../../../lib/dtensor/propagation/propagate.js';
import { DTensorSpec } from '../../../lib/dtensor/spec/spec.js';
import { fakeMesh, specOf } from '../fake-mesh.js';
import { add, decisionOf, metadata, relu, toyOp } from './toy-ops.js';

const [R, S0] = [Replicate(), Shard(0)];
const mesh = fakeMesh([4], ['tp']);
const grid = fakeMesh([2, 4], ['dp', 'tp']);

describe('the cache of decisions', () => {
  const x = specOf(mesh, [8, 8], [S0]);

  it('finds a decision by op, specs and params', () => {
    const decision = decisionOf(add, [x, x], { alpha: 2 });
    assert.equal(decisionOf(add, [x, x], { alpha: 2 }), decision);
    assert.notEqual(decisionOf(add, [x, x], { alpha: 3 }), decision);
    assert.notEqual(decisionOf(add, [x, x, x], { alpha: 2 }), decision);
    assert.notEqual(decisionOf(add, [x, x], { alpha: 2 }, x), decision);
    assert.notEqual(decisionOf(relu, [x], { alpha: 2 }), decision);
  });

  it('calls neither the sharding rule nor the shape rule again', () => {
    let asked = 0;
    const op = toyOp({
      name: 'counted',
      shape: ([t]) => (asked++, [t?.shape ?? []]),
      sharding: { strategies: () => (asked++, []) },
    });
    decisionOf(op, [x]);
    const before = asked;
    decisionOf(op, [x]);
    assert.equal(asked, before);
    decisionOf(op, [x], { fn: () => {} });
    decisionOf(op, [x], { fn: () => {} });
    assert.ok(asked > before + 1, 'params without a key are decided anew');
  });

  it('depends on the dtypes of numbers and on the default dtype', () => {
    const meta = (dtype: DTensorSpec['dtype']) => ({
      shape: [8, 8],
      strides: contiguousStrides([8, 8]),
      dtype,
    });
    const promoted = (number: DTensorSpec['dtype']) =>
      propagate(
        add,
        [metadata([8, 8], int64), metadata([], number)],
        [DTensorSpec(mesh, [S0], { tensorMeta: meta(int64) }), null],
        {},
        null,
        () => [meta(number === int64 ? int64 : getDefaultDtype())],
      ).outputs[0]?.dtype;
    assert.deepEqual([promoted(int64), promoted(float32)], [int64, float32]);
    setDefaultDtype(float64);
    try {
      assert.equal(promoted(float32), float64);
    } finally {
      setDefaultDtype(float32);
    }
  });
});

describe('propagate reports mistakes', () => {
  const x = specOf(mesh, [8, 8], [S0]);

  it('of tensors on two meshes', () => {
    assert.throws(
      () => decisionOf(add, [x, specOf(grid, [8, 8], [R, R])]),
      /add: expected all tensors on one mesh, got one on mesh \(tp: 4\) and one on another mesh \(dp: 2, tp: 4\)/,
    );
  });

  it('of a sharding rule', () => {
    const wrong = toyOp({
      name: 'wrong',
      shape: () => [[8]],
      sharding: { strategies: () => [{ inputs: [S0], outputs: [] }] },
    });
    assert.throws(
      () => decisionOf(wrong, [x]),
      /wrong: its sharding rule gives placements for 1 inputs and 0 outputs, but this call has 1 and 1/,
    );
  });

  it('of a call without distributed tensors', () =>
    assert.throws(() => decisionOf(add, [null, null]), /expected at least one distributed tensor/));
});
