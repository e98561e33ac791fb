/**
 * How ops run on sharded tensors: which strategies are chosen, what inputs must become, what
 * results are.
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
import { ShapeError, ShardingError } from '../../../lib/core/errors.js';
import { Partial, Replicate, Shard } from '../../../lib/core/placement.js';
import { contiguousStrides } from '../../../lib/core/shape.js';
import { propagate } from '../../../lib/dtensor/propagation/propagate.js';
import { DTensorSpec } from '../../../lib/dtensor/spec/spec.js';
import { fakeMesh, metaOf, specOf } from '../fake-mesh.js';
import {
  add,
  cumsum,
  decisionOf,
  embedding,
  lookUpRows,
  matmul,
  mean,
  metadata,
  relu,
  step,
  toyOp,
  variance,
  withDecomposition,
  withoutRule,
} from './toy-ops.js';

const [R, S0, S1, P] = [Replicate(), Shard(0), Shard(1), Partial()];
const mesh = fakeMesh([4], ['tp']);
const grid = fakeMesh([2, 4], ['dp', 'tp']);
const texts = (specs: readonly (DTensorSpec | null)[]) =>
  specs.map((spec) => spec && `[${spec.placements.join(', ')}]`);

describe('a decision', () => {
  it('keeps inputs that fit as they are', () => {
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

  it('cuts a replicated input rather than gathering a sharded one', () => {
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

  it('leaves terms unreduced where the op is linear, and reduces them to copies where it is not', () => {
    assert.deepEqual(
      texts(decisionOf(add, [specOf(mesh, [8, 8], [P]), specOf(mesh, [8, 8], [P])]).outputs),
      ['[Partial(sum)]'],
    );
    assert.deepEqual(texts(decisionOf(relu, [specOf(mesh, [8, 8], [P])]).inputs), [
      '[Replicate()]',
    ]);
  });

  it('scatters terms to join a sharded operand', () => {
    assert.deepEqual(
      texts(decisionOf(add, [specOf(mesh, [8, 8], [P]), specOf(mesh, [8, 8], [S1])]).inputs),
      ['[Shard(1)]', '[Shard(1)]'],
    );
  });

  it('cuts no dim of one element anew', () => {
    const decision = decisionOf(add, [specOf(mesh, [1, 8], [R]), specOf(mesh, [1, 8], [S1])]);
    assert.deepEqual(texts(decision.inputs), ['[Shard(1)]', '[Shard(1)]']);
    assert.deepEqual(
      texts(decisionOf(add, [specOf(mesh, [1, 8], [S0]), specOf(mesh, [1, 8], [S0])]).outputs),
      ['[Shard(0)]'],
    );
  });

  it('passes numbers by', () => {
    const decision = decisionOf(add, [specOf(mesh, [8, 8], [S1]), null]);
    assert.deepEqual(
      [texts(decision.inputs), texts(decision.outputs)],
      [['[Shard(1)]', null], ['[Shard(1)]']],
    );
  });

  it('tells rules what earlier mesh dims cut', () => {
    const outputs = (rows: number) =>
      texts(decisionOf(mean, [specOf(grid, [rows, 3], [S0, S0])]).outputs);
    assert.deepEqual(outputs(16), ['[Partial(avg), Partial(avg)]']);
    assert.deepEqual(
      outputs(12),
      ['[Partial(avg), Shard(0)]'],
      '12 rows are 2 times 6, and 6 are not 4 equal parts',
    );
  });

  it('has the local function of the strategy that has one', () => {
    assert.equal(
      decisionOf(embedding, [specOf(grid, [100, 8], [R, S0]), specOf(grid, [6], [S0, R])]).run,
      lookUpRows,
    );
  });

  it('mixes no reductions that do not commute', () => {
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

  it('says what the whole results are', () => {
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

describe('the order of cuts', () => {
  const tensorParallelFirst = [[1, 0]];

  it('goes from inputs to results', () => {
    const x = specOf(grid, [16, 8], [S0, S0], tensorParallelFirst);
    const decision = decisionOf(relu, [x]);
    assert.deepEqual(
      [decision.needsRedistribute, decision.outputs[0]?.order],
      [false, [[1, 0], []]],
    );
  });

  it('is one for inputs that go together: that of the larger', () => {
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

  it('goes through dims of other numbers', () => {
    const [a, b] = [
      specOf(grid, [16, 16], [S1, S1], [[], [1, 0]]),
      specOf(grid, [16, 16], [S0, S0], tensorParallelFirst),
    ];
    assert.equal(decisionOf(matmul, [a, b]).needsRedistribute, false);
    assert.equal(decisionOf(matmul, [a, specOf(grid, [16, 16], [S0, S0])]).needsRedistribute, true);
  });

  it('is that of the tensor which is written to', () => {
    const [into, other] = [
      specOf(grid, [16, 8], [S0, S0]),
      specOf(grid, [16, 8], [S0, S0], tensorParallelFirst),
    ];
    const decision = decisionOf(add, [into, other], {}, into);
    assert.deepEqual([decision.inputs, decision.outputs], [[into, into], [into]]);
  });

  it('cannot differ between tensors that are written to', () => {
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

describe('a tensor that is written to', () => {
  it('keeps its placement, and the inputs come to it', () => {
    const into = specOf(mesh, [8, 8], [S0]);
    const decision = decisionOf(add, [into, specOf(mesh, [8, 8], [S1])], {}, into);
    assert.deepEqual([decision.inputs, decision.outputs], [[into, into], [into]]);
    const scalar = specOf(mesh, [1, 8], [S0]);
    assert.deepEqual(decisionOf(add, [scalar, specOf(mesh, [1, 8], [R])], {}, scalar).outputs, [
      scalar,
    ]);
  });

  it('stays replicated though an operand is sharded', () => {
    const into = specOf(mesh, [8, 8], [R]);
    assert.deepEqual(texts(decisionOf(add, [into, specOf(mesh, [8, 8], [S1])], {}, into).inputs), [
      '[Replicate()]',
      '[Replicate()]',
    ]);
  });

  it('is refused where no strategy leaves it in its place', () => {
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

  it('may be an input that the op overwrites: it is never redistributed', () => {
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

describe('an op that has no strategy', () => {
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

  it('decomposes, if its rule says so, where pieces would have to move', () => {
    assert.equal(decisionOf(variance, [specOf(mesh, [8, 8], [S0])]).fallback, 'decompose');
    assert.equal(decisionOf(variance, [specOf(mesh, [8, 8], [S1])]).fallback, 'none');
    assert.deepEqual(texts(decisionOf(variance, [specOf(mesh, [8, 8], [P])]).inputs), [
      '[Replicate()]',
    ]);
  });

  it('gives a decomposition reduced what that reads more than once, and leaves cuts', () => {
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

describe('what was decided', () => {
  const x = specOf(mesh, [8, 8], [S0]);

  it('is found again by op, specs and params', () => {
    const decision = decisionOf(add, [x, x], { alpha: 2 });
    assert.equal(decisionOf(add, [x, x], { alpha: 2 }), decision);
    assert.notEqual(decisionOf(add, [x, x], { alpha: 3 }), decision);
    assert.notEqual(decisionOf(add, [x, x, x], { alpha: 2 }), decision);
    assert.notEqual(decisionOf(add, [x, x], { alpha: 2 }, x), decision);
    assert.notEqual(decisionOf(relu, [x], { alpha: 2 }), decision);
  });

  it('is not asked again: neither the rule nor the shape rule', () => {
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

describe('mistakes', () => {
  const x = specOf(mesh, [8, 8], [S0]);

  it('of tensors on two meshes are named', () => {
    assert.throws(
      () => decisionOf(add, [x, specOf(grid, [8, 8], [R, R])]),
      /add: expected all tensors on one mesh, got one on mesh \(tp: 4\) and one on another mesh \(dp: 2, tp: 4\)/,
    );
  });

  it('of a rule are named', () => {
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

  it('of a call without distributed tensors are named', () =>
    assert.throws(() => decisionOf(add, [null, null]), /expected at least one distributed tensor/));
});
