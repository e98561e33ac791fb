/** Ops of users: eager, under autograd, changing arguments, on fake tensors, in captured graphs. */
import assert from 'node:assert/strict';
import { FakeTensorMode } from '../../lib/compile/index.js';
import {
  type DTensor,
  destroyProcessGroup,
  distributeTensor,
  initDeviceMesh,
  initProcessGroup,
  Shard,
} from '../../lib/distributed.js';
import {
  ArgumentError,
  AutogradError,
  autograd,
  CompileError,
  compile,
  float64,
  InPlaceError,
  library,
  memory,
  noGrad,
  ones,
  randn,
  type Tensor,
  tensor,
  zeros,
} from '../../lib/index.js';
import { CompileCounter } from '../../lib/testing/index.js';

const values = (t: Tensor | null | undefined): number[] =>
  Array.from((t as Tensor).toTypedArray() as Float32Array);
let count = 0;
const fresh = (): string => `test::op${count++}`;

/** k x^2, with its gradient. */
function scaledSquare() {
  return library
    .customOp(fresh(), {}, (x: Tensor, k: number) => x.mul(x).mul(k))
    .registerFake((x) => x)
    .registerAutograd({
      setupContext: (ctx, [x, k]) => Object.assign(ctx, { x, k }),
      backward: (ctx, g) => [g?.mul(ctx['x'] as Tensor).mul(2 * (ctx['k'] as number)), null],
    });
}

describe('a custom op', () => {
  it('takes tensors, lists of tensors and plain values as arguments', () => {
    const weighted = library.customOp(
      fresh(),
      {},
      (list: readonly Tensor[], weights: readonly number[], { bias }: { bias: number }) =>
        list.map((t, i) => t.mul(weights[i] as number).add(bias)),
    );
    const [a, b] = weighted([ones([2]), ones([2])], [2, 3], { bias: 1 });
    assert.deepEqual(
      [values(a), values(b)],
      [
        [3, 3],
        [4, 4],
      ],
    );
  });

  it('uses the registered gradient', () => {
    const op = scaledSquare();
    const x = tensor([1, 2], { requiresGrad: true });
    op(x, 3).sum().backward();
    assert.deepEqual(values(x.grad), [6, 12]);
    assert.ok(
      autograd.gradcheck(
        (t: Tensor) => op(t, 0.5),
        [randn([3], { dtype: float64, requiresGrad: true })],
      ),
    );
  });

  it('reads its outputs in backward, and returns gradients of lists', () => {
    const product = library
      .customOp(fresh(), {}, (list: readonly Tensor[]) =>
        (list[0] as Tensor).mul(list[1] as Tensor),
      )
      .registerAutograd({
        setupContext: (ctx, [list], [out]) => Object.assign(ctx, { list, out }),
        backward: ({ list, out }, g) => [
          (list as Tensor[]).map((t) => g?.mul(out as Tensor).div(t)),
        ],
      });
    const [a, b] = [tensor([2, 3], { requiresGrad: true }), tensor([5, 7], { requiresGrad: true })];
    product([a, b]).sum().backward();
    assert.deepEqual(values(a.grad), [5, 7]);
    assert.deepEqual(values(b.grad), [2, 3]);
  });

  it('names what to register when its gradient is missing or incomplete', () => {
    const bare = library.customOp(fresh(), {}, (x: Tensor) => x.add(1));
    assert.throws(
      () =>
        bare(ones([1]).requiresGrad_())
          .sum()
          .backward(),
      (e: Error) => e instanceof AutogradError && /registerAutograd/.test(e.message),
    );
    const short = library
      .customOp(fresh(), {}, (x: Tensor, y: Tensor) => x.add(y))
      .registerAutograd({ backward: (_ctx, g) => [g] });
    assert.throws(
      () =>
        short(ones([1]).requiresGrad_(), ones([1]))
          .sum()
          .backward(),
      /1 gradients for 2 arguments/,
    );
  });

  it('say that backward is no asynchronous function, and gives tensors', () => {
    const gradientOf = (rule: object) => () =>
      library
        .customOp(fresh(), {}, (x: Tensor) => x.mul(2))
        .registerAutograd(rule as never)(ones([1]).requiresGrad_())
        .sum()
        .backward();
    const cases: [object, RegExp][] = [
      [{ backward: async () => [null] }, /backward: expected a synchronous function/],
      [
        { setupContext: async () => ({}), backward: () => [null] },
        /setupContext: expected a synchronous function/,
      ],
      [
        { backward: () => [1] },
        /expected the gradient of argument 0 to be a tensor or null, got 1/,
      ],
    ];
    for (const [rule, message] of cases)
      assert.throws(
        gradientOf(rule),
        (error: Error) => error instanceof ArgumentError && message.test(error.message),
      );
  });

  it('frees its intermediate tensors', () => {
    const op = library.customOp(fresh(), {}, (x: Tensor) => x.add(1).add(2).add(3));
    const x = ones([256]);
    memory.collect();
    const before = memory.stats().allocatedBytes;
    const y = op(x);
    assert.equal(memory.stats().allocatedBytes - before, 1024);
    y.dispose();
  });

  it('counts each declared change once', () => {
    const addOne = library.customOp(fresh(), { mutatesArgs: [1] }, (x: Tensor, out: Tensor) => {
      out.copy_(x.add(1));
      out.mul_(2);
    });
    const out = zeros([2]);
    assert.equal(addOne(ones([2]), out), undefined);
    assert.deepEqual(values(out), [4, 4]);
    assert.equal(out._version, 1);
    const leaf = zeros([2]).requiresGrad_();
    assert.throws(() => addOne(ones([2]), leaf), InPlaceError);
    noGrad(() => addOne(ones([2]), leaf));
    assert.deepEqual(values(leaf), [4, 4]);
  });

  it('is refused if it changes an argument that it did not declare', () => {
    const sneaky = library.customOp(fresh(), {}, (x: Tensor) => x.add_(1).clone());
    assert.throws(() => sneaky(ones([2])), InPlaceError);
    const alias = library.customOp(fresh(), {}, (x: Tensor) => x.view([-1]));
    assert.throws(
      () => alias(ones([2, 2])),
      (e: Error) => e instanceof ArgumentError && /shares memory/.test(e.message),
    );
    const text = library.customOp(fresh(), {}, (() => 'text') as unknown as () => Tensor);
    assert.throws(() => text(), ArgumentError);
  });

  it('refuses a name that is taken', () => {
    const name = fresh();
    library.customOp(name, {}, (x: Tensor) => x.neg());
    assert.throws(() => library.customOp(name, {}, (x: Tensor) => x.neg()), /already defined/);
    assert.throws(() => library.customOp('plain', {}, (x: Tensor) => x.neg()), ArgumentError);
    assert.throws(
      () => library.customOp(fresh(), { mutatesArgs: [-1] }, (x: Tensor) => x.neg()),
      ArgumentError,
    );
    const mutable = library.customOp(fresh(), { mutatesArgs: [0] }, (x: Tensor) => void x.neg_());
    assert.throws(() => mutable.registerAutograd({ backward: () => null }), ArgumentError);
    assert.throws(() => mutable(3 as unknown as Tensor), /argument 0/);
  });

  it('has a shape on fake tensors if a shape rule is registered', () => {
    const pair = library
      .customOp(fresh(), {}, (x: Tensor) => [x.sum(0), x.sum(1)])
      .registerFake((x) => [{ shape: [x.shape[1] as number] }, { shape: [x.shape[0] as number] }]);
    new FakeTensorMode().run(() => {
      const [a, b] = pair(zeros([3, 5]));
      assert.deepEqual([a?.shape, b?.shape], [[5], [3]]);
    });
    const bare = library.customOp(fresh(), {}, (x: Tensor) => x.neg());
    assert.throws(
      () => new FakeTensorMode().run(() => bare(zeros([2]))),
      (e: Error) => e instanceof CompileError && /registerFake/.test(e.message),
    );
  });

  it('is one node of a captured graph, which is replayed with gradients', () => {
    const op = scaledSquare();
    const counter = CompileCounter();
    const fn = compile((x: Tensor) => op(x, 2).add(1), { backend: counter, fullgraph: true });
    for (const start of [1, 3]) {
      const x = tensor([start], { requiresGrad: true });
      const y = fn(x);
      assert.deepEqual(values(y), [2 * start * start + 1]);
      y.sum().backward();
      assert.deepEqual(values(x.grad), [4 * start]);
    }
    assert.equal(counter.frameCount, 1);
    assert.equal(counter.opCount, 2);
    assert.match(String(counter.graphs[0]), new RegExp(op.opName));
  });

  it('saves nothing for a gradient that keeps no tensors, and gives it plain values alone', () => {
    const seen: unknown[] = [];
    const scaled = library
      .customOp(
        fresh(),
        { keepsNoTensors: true },
        (list: readonly Tensor[], x: Tensor, how: { k: number }) => [
          x.mul(how.k),
          ...list.map((t) => t.mul(how.k)),
        ],
      )
      .registerAutograd({
        setupContext: (ctx, args, outputs) => {
          seen.push([...args], outputs);
          ctx['k'] = args[2].k;
        },
        backward: (ctx, ...grads) => {
          const [own, ...others] = grads.map((g) => g?.mul(ctx['k'] as number) ?? null);
          return [others, own, null];
        },
      });
    const [x, y] = [ones([2], { requiresGrad: true }), ones([2], { requiresGrad: true })];
    const how = { k: 3 };
    const saved: Tensor[] = [];
    const results = autograd.savedTensorsHooks(
      (t) => (saved.push(t), t),
      (t) => t,
      () => scaled([y], x, how),
    );
    (results[0] as Tensor).sum().backward();
    assert.deepEqual(values(x.grad), [3, 3]);
    assert.equal(y.grad, null);
    assert.deepEqual(seen, [[[], null, how], []]);
    assert.equal(saved.length, 0);
  });

  it('gets distributed tensors as they are if it communicates, in fake tensors, too', async () => {
    const counted = library.customOp(
      fresh(),
      { communicates: true },
      (x: Tensor, seen: Tensor[]) => {
        seen.push(x);
        return [(x as DTensor).toLocal(), x];
      },
    );
    initProcessGroup('fake', { rank: 0, worldSize: 2 });
    try {
      const run = (): void => {
        const x = distributeTensor(ones([4]), initDeviceMesh('cpu', [2]), [Shard(0)]);
        const seen: Tensor[] = [];
        const [local, same] = counted(x, seen) as [Tensor, Tensor];
        assert.deepEqual([local.shape, same.shape], [[2], [4]]);
        assert.equal(seen[0], x);
      };
      run();
      new FakeTensorMode().run(run);
    } finally {
      await destroyProcessGroup();
    }
  });

  it('says which of its options is wrong', () => {
    for (const name of ['communicates', 'keepsNoTensors'])
      assert.throws(
        () => library.customOp(fresh(), { [name]: 1 }, (x: Tensor) => x.clone()),
        (e: Error) => e instanceof ArgumentError && e.message.includes(name),
      );
  });

  it('changes the buffers of a captured function that swaps them under its argument', () => {
    const addOneOut = library
      .customOp(fresh(), { mutatesArgs: [1] }, (x: Tensor, out: Tensor) => void out.copy_(x.add(1)))
      .registerFake(() => {});
    const f = (x: Tensor): void => {
      const buffer = zeros([2]);
      addOneOut(x, buffer.view([-1]));
      x.set_(buffer.view([-1]));
    };
    noGrad(() => {
      const [x, y] = [zeros([2]), zeros([2])];
      f(x);
      compile(f, { fullgraph: true })(y);
      assert.deepEqual(values(x), [1, 1]);
      assert.deepEqual(values(y), [1, 1]);
    });
  });
});
