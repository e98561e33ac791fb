/** Which calls are fused, and that the graph computes the same. */
import assert from 'node:assert/strict';
import { buildPlan } from '../../../lib/compile/schedule/plan.js';
import { dispatch } from '../../../lib/core/dispatch.js';
import { opByName } from '../../../lib/core/op.js';
import {
  bfloat16,
  cat,
  dropout,
  float16,
  int32,
  rand,
  randn,
  type Tensor,
  tensor,
  zeros,
} from '../../../lib/index.js';
import { callsOf, fusedGraph } from './fused.js';

const x = (...shape: number[]): Tensor => randn(shape);
const calls = (fn: (...inputs: Tensor[]) => Tensor[], ...inputs: Tensor[]): string[] =>
  callsOf(fusedGraph(fn, inputs));

describe('the fusion pass', () => {
  it('joins a chain of pointwise calls, and prints what it computes', () => {
    const graph = fusedGraph((a, b, c) => [a.add(b).add(c, { alpha: 2 })], [x(4), x(4), x(4)]);
    assert.equal(
      String(graph).split('\n').at(-2),
      '%fused_add_add: float32[4] = fusedPointwise(%arg, %arg_1, %arg_2)' +
        '  // t0 = add(i0, i1); t1 = add(t0, i2; 2)',
    );
  });

  it('leaves a single call as it is', () => {
    assert.deepEqual(
      calls((a) => [a.exp()], x(4)),
      ['exp'],
    );
    assert.deepEqual(
      calls((a) => [a.exp().sum()], x(4)),
      ['exp', 'sum'],
    );
  });

  it('joins conversions, rounding where they do', () => {
    assert.deepEqual(
      calls((a) => [a.to(bfloat16)], x(4)),
      ['copy'],
    );
    assert.deepEqual(
      calls((a) => [a.mul(3).to(bfloat16)], x(40)),
      ['fused 2'],
    );
    const half = x(3, 50).to(float16);
    assert.deepEqual(
      calls((a) => [a.float().exp().to(bfloat16).mul(3)], half),
      ['fused 4'],
    );
  });

  it('keeps values that something else reads or that are results', () => {
    const graph = fusedGraph(
      (a, b) => {
        const sum = a.add(b);
        const product = sum.mul(2);
        return [sum.matmul(b), product, product.exp()];
      },
      [x(4, 4), x(4, 4)],
    );
    assert.deepEqual(callsOf(graph), ['fused 3', 'matmul']);
    assert.match(String(graph), /-> t0, t1, t2/);
  });

  it('joins calls that read one value, also if a product stands between them', () => {
    const got = calls(
      (a, b) => {
        const g = a.mul(2).matmul(b);
        return [g.exp().matmul(b), g.neg()];
      },
      x(4, 4),
      x(4, 4),
    );
    assert.deepEqual(got, ['mul', 'matmul', 'fused 2', 'matmul']);
  });

  it('joins no calls that read one value far from each other', () => {
    const got = calls(
      (a, b) => {
        const first = a.exp();
        let far = b;
        for (let i = 0; i < 120; i++) far = far.matmul(b);
        return [first, far, a.neg()];
      },
      x(2, 2),
      x(2, 2).mul(0.1),
    );
    assert.deepEqual([got.at(0), got.at(-1)], ['exp', 'neg']);
  });

  it('makes no call depend on itself', () => {
    const got = calls(
      (a, b) => {
        const y = a.add(b);
        return [y.exp().add(y.matmul(b).neg()).mul(y)];
      },
      x(4, 4),
      x(4, 4),
    );
    assert.deepEqual(got, ['fused 2', 'matmul', 'fused 3']);
  });

  it('reads broadcast, transposed and strided operands in place', () => {
    const operands = [x(6, 4), x(4), x(6, 1), x(4, 6).t(), x(6, 8).narrow(1, 2, 4), tensor(2)];
    const got = calls((...all) => [all.reduce((sum, t) => sum.mul(0.5).add(t))], ...operands);
    assert.deepEqual(got, ['fused 10']);
    assert.deepEqual(
      calls((a) => [a.t().exp().neg()], x(3, 5)),
      ['transpose', 'fused 2'],
    );
    assert.deepEqual(
      calls((a) => [a.expand([3, 5]).exp().neg()], x(5)),
      ['expand', 'fused 2'],
    );
  });

  it('looks through views of dense values', () => {
    const got = calls(
      (a, row) => {
        const flat = a.neg().view([-1]).exp();
        return [flat.view([4, 6]).add(row), flat];
      },
      x(6, 4),
      x(6),
    );
    assert.deepEqual(got, ['view', 'fused 3', 'view']);
    const part = calls((a) => [a.neg().view([-1]).narrow(0, 0, 4).exp()], x(2, 4));
    assert.deepEqual(part, ['neg', 'view', 'slice', 'exp']);
  });

  it('leaves copies that change the order of memory', () => {
    assert.deepEqual(
      calls((a) => [a.t().contiguous().exp().neg()], x(3, 5)),
      ['transpose', 'copy', 'fused 2'],
    );
  });

  it('joins calls without elements, and of one', () => {
    assert.deepEqual(
      calls((a) => [a.exp().add(1).neg()], x(0, 4)),
      ['fused 3'],
    );
    assert.deepEqual(
      calls((a) => [a.exp().add(1).neg()], tensor(3)),
      ['fused 3'],
    );
  });

  it('does not join calls of different shapes', () => {
    assert.deepEqual(
      calls((a, b) => [a.exp().add(b)], x(4), x(3, 4)),
      ['exp', 'add'],
    );
  });

  it('moves nothing across a change in place', () => {
    const got = calls(
      (a, b) => {
        const before = a.exp();
        a.add_(1);
        return [before.add(b), a.exp().add(before)];
      },
      x(4),
      x(4),
    );
    assert.deepEqual(got, ['exp', 'add', 'fused 3']);
  });

  it('keeps the order of draws', () => {
    const got = calls((a) => {
      const first = dropout(a.exp().neg(), 0.5);
      const second = dropout(a.sin(), 0.5);
      return [second.add(1).add(a.exp().neg().mul(first)), rand([4])];
    }, x(4));
    assert.equal(got.filter((name) => name === 'dropout').length, 2);
  });

  it('splits what exceeds the limits of the kernel', () => {
    const long = calls(
      (a) => [Array.from({ length: 100 }).reduce<Tensor>((t) => t.add(1), a)],
      x(4),
    );
    assert.deepEqual(long, ['fused 64', 'fused 36']);
    const many = Array.from({ length: 40 }, () => x(4));
    for (const name of calls((...all) => [all.reduce((sum, t) => sum.add(t))], ...many))
      assert.match(name, /^fused/);
  });

  it('reports integers that are divided by zero as the op does', () => {
    const whole = [tensor([1, 2], { dtype: int32 }), tensor([1, 0], { dtype: int32 })];
    assert.throws(
      () => fusedGraph((a, b) => [a.floorDivide(b).mul(2)], whole),
      /ZeroDivisionError: floor_divide of integers by zero/,
    );
  });

  it('names the ops of the program in errors of a plan', () => {
    const whole = [tensor([1, 2], { dtype: int32 }), tensor([1, 1], { dtype: int32 })];
    const graph = fusedGraph((a, b) => [a.floorDivide(b).mul(2)], whole);
    const given = [tensor([1, 2], { dtype: int32 }), tensor([1, 0], { dtype: int32 })];
    assert.throws(
      () => (buildPlan(graph).run(given)[0] as Tensor).tolist(),
      /fusedPointwise of floorDivide, mul: .*ZeroDivisionError: floor_divide/,
    );
  });

  it('leaves calls that write into a tensor', () => {
    const got = calls(
      (a, b) => {
        const sum = zeros([4]);
        dispatch(opByName('add') as never, [a, b], { alpha: 1 }, sum);
        return [sum.exp().neg()];
      },
      x(4),
      x(4),
    );
    assert.deepEqual(got, ['full', 'add', 'fused 2']);
  });

  it('keeps results that share memory', () => {
    fusedGraph(
      (a) => {
        const y = a.exp().neg();
        return [y, y.view([-1]), y.view([-1]).sin().cos(), cat([y, y])];
      },
      [x(2, 3)],
    );
  });
});
