/** What a plan reads anew at each run, and how it is divided. */
import assert from 'node:assert/strict';
import { FakeTensorMode } from '../../../lib/compile/fake-tensor-mode.js';
import { buildPlan } from '../../../lib/compile/schedule/plan.js';
import {
  arange,
  cat,
  dropout,
  fromBlob,
  getFloat32MatmulPrecision,
  library,
  manualSeed,
  nn,
  noGrad,
  ones,
  rand,
  randn,
  setFloat32MatmulPrecision,
  type Tensor,
  tensor,
  zeros,
} from '../../../lib/index.js';
import { assertSameAsSteps, exactly, lower, planOf, runSlowly } from './lowered.js';

const list = (t: unknown): unknown => (t as Tensor).tolist();

describe('a plan', () => {
  it('runs a chain of calls as one segment, in memory for two results', () => {
    const model = new nn.Sequential(...Array.from({ length: 5 }, () => new nn.Linear(8, 8)));
    const plan = assertSameAsSteps((x) => [model(x)], [randn([2, 8])]);
    assert.deepEqual(plan.summary, { segments: 1, commands: 5, single: 0, arenaBytes: 512 });
  });

  it('returns inputs and constants themselves, and one tensor for one value', () => {
    const constant = ones([2]);
    const plan = planOf(
      (x) => {
        const y = x.add(1);
        return [x, constant, y, y, y.view([2, 1])];
      },
      [zeros([2])],
    );
    const input = zeros([2]);
    const [x, c, y, again, view] = plan.run([input]) as Tensor[];
    assert.equal(x, input);
    assert.equal(c, constant);
    assert.equal(y, again);
    assert.equal(view?.untypedStorage(), y?.untypedStorage());
  });

  it('returns views of its inputs on their memory', () => {
    const plan = planOf((x) => [x.narrow(0, 1, 2), x.t()], [zeros([3, 2])]);
    const wide = arange(0, 12).view([4, 3]).t();
    const input = arange(0, 12).view([6, 2]).narrow(0, 3, 3);
    for (const given of [input, wide.narrow(1, 1, 2)]) {
      const [part, transposed] = plan.run([given]) as [Tensor, Tensor];
      assert.equal(part.untypedStorage(), given.untypedStorage());
      assert.deepEqual(list(part), list(given.narrow(0, 1, 2)));
      assert.deepEqual(list(transposed), list(given.t()));
    }
  });

  it('reads the memory that constants have when it runs', () => {
    const weight = ones([3]);
    const plan = planOf((x) => [x.mul(weight)], [ones([3])]);
    const result = (): unknown => list(plan.run([tensor([1, 2, 3])])[0]);
    assert.deepEqual(result(), [1, 2, 3]);
    weight.fill_(2);
    assert.deepEqual(result(), [2, 4, 6]);
    weight.set_(tensor([0, 0, 3, 4, 5]).narrow(0, 2, 3));
    assert.deepEqual(result(), [3, 8, 15]);
    weight.data = tensor([1, 1, 1]);
    assert.deepEqual(result(), [1, 2, 3]);
    weight.untypedStorage().resize_(0);
    weight.untypedStorage().resize_(12);
    weight.fill_(5);
    assert.deepEqual(result(), [5, 10, 15]);
  });

  it('runs call by call where an input has another layout than the graph', () => {
    const graph = lower((x) => [x.relu().matmul(x)], [randn([3, 3])]);
    const plan = buildPlan(graph);
    const others = [
      randn([3, 3]).t(),
      randn([4, 4]),
      randn([6, 6]).narrow(0, 1, 3).narrow(1, 0, 3),
    ];
    for (const input of others)
      assert.deepEqual(plan.run([input]).map(exactly), runSlowly(graph, [input]).map(exactly));
  });

  it('reads from where an input begins in its memory', () => {
    const plan = planOf((x) => [x.mul(2)], [zeros([2])]);
    assert.deepEqual(list(plan.run([arange(0, 5).narrow(0, 3, 2)])[0]), [6, 8]);
  });

  it('gives views with an offset in the storage the offset of the op', () => {
    const program = (x: Tensor): Tensor[] => [x.asStrided([2], [1], 1).mul(10)];
    const graph = lower(program, [arange(0, 4)]);
    const plan = buildPlan(graph);
    for (const input of [arange(0, 4), arange(0, 8).narrow(0, 4, 4)])
      assert.deepEqual(list(plan.run([input])[0]), list(runSlowly(graph, [input])[0]));
  });

  it('copies first where a call writes into what another input shows', () => {
    const program = (x: Tensor, y: Tensor): Tensor[] => [x.copy_(y)];
    const graph = lower(program, [zeros([3]), zeros([3])]);
    const plan = buildPlan(graph);
    const results = [
      (given: Tensor[]) => runSlowly(graph, given),
      (given: Tensor[]) => plan.run(given),
    ].map((run) => {
      const base = tensor([0, 1, 2, 3]);
      run([base.narrow(0, 1, 3), base.narrow(0, 0, 3)]);
      const array = new Float32Array([0, 1, 2, 3]);
      run([fromBlob(array.subarray(1), [3]), fromBlob(array.subarray(0, 3), [3])]);
      return [list(base), [...array]];
    });
    assert.deepEqual(results[0], [
      [0, 0, 1, 2],
      [0, 0, 1, 2],
    ]);
    assert.deepEqual(results[1], results[0]);
  });

  it('reads and writes the memory of an ArrayBuffer', () => {
    const plan = planOf((x) => [x.add_(1).mul(2)], [zeros([3])]);
    const array = new Float32Array([1, 2, 3]);
    assert.deepEqual(list(plan.run([fromBlob(array, [3])])[0]), [4, 6, 8]);
    assert.deepEqual([...array], [2, 3, 4]);
  });

  it('draws the numbers that the calls would draw', () => {
    const program = (x: Tensor): Tensor[] => [dropout(x, 0.5), rand([3]), dropout(x, 0.25)];
    const graph = lower(program, [ones([20])]);
    const plan = buildPlan(graph);
    assert.equal(plan.summary.segments, 1);
    const runs = [
      (given: Tensor[]) => plan.run(given),
      (given: Tensor[]) => runSlowly(graph, given),
      (given: Tensor[]) => program(...(given as [Tensor])),
    ].map((run) => {
      manualSeed(5);
      return [run([ones([20])]).map(list), run([ones([20])]).map(list), list(rand([2]))];
    });
    assert.deepEqual(runs[1], runs[0]);
    assert.deepEqual(runs[2], runs[0]);
    assert.notDeepEqual(runs[0]?.[0], runs[0]?.[1]);
  });

  it('computes with the precision of products that is set when it runs', () => {
    const before = getFloat32MatmulPrecision();
    const plan = planOf((a, b) => [a.matmul(b)], [ones([2, 2]), ones([2, 2])]);
    try {
      setFloat32MatmulPrecision('high');
      assert.deepEqual(list(plan.run([ones([2, 2]), ones([2, 2])])[0]), [
        [2, 2],
        [2, 2],
      ]);
    } finally {
      setFloat32MatmulPrecision(before);
    }
  });

  it('raises the versions of the tensors that calls write into', () => {
    const constant = zeros([2]);
    const plan = planOf(
      (x, y) => {
        x.add_(y);
        x.narrow(0, 0, 1).mul_(2);
        constant.copy_(x);
        return [x.add(1)];
      },
      [zeros([2]), zeros([2])],
    );
    const [x, y] = [zeros([2]), ones([2])];
    const [before, constantBefore] = [x._version, constant._version];
    const [result] = plan.run([x, y]) as [Tensor];
    assert.deepEqual(
      [x._version - before, y._version, constant._version - constantBefore, result._version],
      [2, 0, 1, 0],
    );
    assert.deepEqual(list(constant), [2, 1]);
  });

  it('runs effects between its segments, in order', () => {
    const program = (x: Tensor, other: Tensor): Tensor[] => {
      const before = x.mul(2);
      x.set_(other);
      const after = x.mul(2);
      other.untypedStorage().resize_(12);
      other.fill_(7);
      return [before, after, x.mul(2)];
    };
    const graph = lower(program, [ones([2]), zeros([2])]);
    const plan = buildPlan(graph);
    assert.ok(plan.summary.single > 0);
    const runs = [
      (given: Tensor[]) => plan.run(given),
      (given: Tensor[]) => runSlowly(graph, given),
      (given: Tensor[]) => program(...(given as [Tensor, Tensor])),
    ].map((run) => {
      const given = [tensor([1, 2]), tensor([3, 4])];
      return [run(given).map(list), given.map(list)];
    });
    assert.deepEqual(runs[0], runs[2]);
    assert.deepEqual(runs[1], runs[2]);
  });

  it('calls ops of the program between its segments', () => {
    let calls = 0;
    const doubled = library.customOp('plan::doubled', {}, (x: Tensor): Tensor => {
      calls++;
      return x.mul(2);
    });
    doubled.registerFake((x: Tensor) => x);
    const plan = planOf((x) => [doubled(x.add(1)).add(1)], [zeros([2])]);
    calls = 0;
    assert.deepEqual(list(plan.run([tensor([1, 2])])[0]), [5, 7]);
    assert.equal(calls, 1);
    const { segments, commands, single } = plan.summary;
    assert.deepEqual([segments, commands, single], [2, 2, 1]);
  });

  it('joins tensors by commands', () => {
    const plan = assertSameAsSteps(
      (x, y) => [cat([x, y, x.t()], 1)],
      [ones([2, 2]), zeros([2, 3])],
    );
    assert.deepEqual([plan.summary.segments, plan.summary.single], [1, 0]);
  });

  it('runs call by call under a dispatch mode', () => {
    const plan = planOf((x) => [x.add(1).mul(2)], [ones([2])]);
    const x = ones([2]);
    const names: string[] = [];
    const [y] = library.withDispatchMode(
      (call) => {
        names.push(call.op);
        return call.run();
      },
      () => plan.run([x]),
    );
    assert.deepEqual(
      [names, list(y)],
      [
        ['add', 'mul'],
        [4, 4],
      ],
    );
  });

  it('makes fake tensors under FakeTensorMode', () => {
    const plan = planOf((x) => [x.add(1)], [ones([2])]);
    const mode = new FakeTensorMode();
    const [y] = mode.run(() => plan.run([mode.fromTensor(ones([2]))])) as [Tensor];
    assert.deepEqual([y.shape, y.isFake], [[2], true]);
  });

  it('keeps a graph of no calls', () => {
    assert.deepEqual(planOf((x) => [x], [ones([2])]).run([5 as never]), [5]);
  });

  it('refuses another number of inputs', () => {
    const plan = planOf((x) => [x.add(1)], [ones([2])]);
    assert.throws(() => plan.run([]), /a graph with 1 inputs was called with 0/);
  });

  it('is independent of gradients that its inputs require', () => {
    const plan = planOf((x) => [x.mul(2)], [ones([2])]);
    const x = ones([2], { requiresGrad: true });
    const [y] = noGrad(() => plan.run([x])) as [Tensor];
    assert.equal(y.requiresGrad, false);
  });
});
