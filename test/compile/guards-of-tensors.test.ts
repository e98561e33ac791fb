/**
 * Guards on facts of tensors: memory, history, views, classes, and constants that are arguments.
 */
import assert from 'node:assert/strict';
import { lossParallel } from '../../lib/distributed.js';
import {
  compile,
  compiler,
  nn,
  noGrad,
  ones,
  type Tensor,
  tensor,
  zeros,
} from '../../lib/index.js';
import { CompileCounter } from '../../lib/testing/index.js';

const list = (t: Tensor): unknown => t.tolist();

/** Compares a compiled function with the function, twice for each list of arguments. */
function same(fn: (...args: never[]) => Tensor, calls: (() => unknown[])[]): number {
  const counter = CompileCounter();
  const compiled = compile(fn, { backend: counter, fullgraph: true }) as (
    ...a: unknown[]
  ) => Tensor;
  for (let round = 0; round < 2; round++)
    for (const args of calls)
      assert.deepEqual(list(compiled(...args())), list(fn(...(args() as never[]))));
  return counter.frameCount;
}

describe('the guards of compile on tensors', () => {
  it('see the size of a storage where the function reads it', () => {
    const fn = (x: Tensor): Tensor => x.mul(x.untypedStorage().size());
    const frames = same(fn, [
      () => [ones([4]).narrow(0, 0, 2)],
      () => [ones([10]).narrow(0, 0, 2)],
    ]);
    assert.equal(frames, 2);
  });

  it('see the size of a storage that is resized from its size', () => {
    const fn = (x: Tensor): Tensor => {
      const size = x.untypedStorage().size();
      x.untypedStorage().resize_(0);
      x.untypedStorage().resize_(size);
      return x.fill_(1);
    };
    const compiled = compile(fn, { fullgraph: true });
    noGrad(() => {
      for (const n of [4, 10, 4]) {
        const x = ones([n]).narrow(0, 0, 2);
        assert.deepEqual(list(compiled(x)), [1, 1]);
        assert.equal(x.untypedStorage().size(), 4 * n);
      }
    });
  });

  it('see the size of the storage of a tensor from outside', () => {
    const w = ones([4]);
    const fn = compile((x: Tensor) => x.mul(w.untypedStorage().size()), { fullgraph: true });
    assert.deepEqual(list(fn(ones([1]))), [16]);
    noGrad(() => w.set_(ones([8]).narrow(0, 0, 4)));
    assert.deepEqual(list(fn(ones([1]))), [32]);
  });

  it('see whether a tensor from outside that no op uses requires a gradient', () => {
    const asked: Record<string, (t: Tensor) => boolean> = {
      requiresGrad: (t) => t.requiresGrad,
      gradFn: (t) => t.gradFn !== null,
      isLeaf: (t) => t.isLeaf,
    };
    for (const [name, asks] of Object.entries(asked)) {
      const flag = ones([1]);
      const fn = (x: Tensor): Tensor => (asks(flag) ? x.mul(2) : x.add(5));
      const counter = CompileCounter();
      const compiled = compile(fn, { backend: counter, fullgraph: true });
      const check = (): void =>
        assert.deepEqual(list(compiled(ones([1]))), list(fn(ones([1]))), name);
      check();
      flag.requiresGrad_();
      check();
      flag.requiresGrad_(false).mul_(ones([1]).requiresGrad_());
      check();
      check();
      assert.equal(counter.frameCount, 3);
    }
  });

  it('hold no argument whose history the function asks for', () => {
    const compiled = compile((x: Tensor) => (x.requiresGrad ? x.mul(2) : x.add(5)));
    const explained = compiler.explain(compiled)(ones([1]));
    assert.ok(explained.graphs[0]?.guards.every((guard) => !/tensor from outside/.test(guard)));
  });

  it('do not compare the size of a storage that the function does not read', () => {
    const frames = same(
      (x: Tensor) => x.add(1),
      [() => [ones([2])], () => [ones([10]).narrow(0, 0, 2)]],
    );
    assert.equal(frames, 2, 'one for a view, one for a tensor with memory of its own');
    const views = same(
      (x: Tensor) => x.add(1),
      [() => [ones([8]).narrow(0, 1, 2)], () => [ones([10]).narrow(0, 3, 2)]],
    );
    assert.equal(views, 1);
  });

  it('see the storage offset where asStrided reads it', () => {
    const base = (): Tensor => tensor([0, 1, 2, 3, 4, 5, 6, 7]);
    same(
      (x: Tensor) => x.asStrided([2], [1]).mul(2),
      [() => [base().narrow(0, 1, 4)], () => [base().narrow(0, 3, 4)]],
    );
    same(
      (x: Tensor) => x.narrow(0, 1, 2).asStrided([2], [1]).mul(2),
      [() => [base().narrow(0, 1, 4)], () => [base().narrow(0, 3, 4)]],
    );
  });

  it('see whether an argument is a view, a leaf, or what made it', () => {
    const fn = (x: Tensor): Tensor =>
      x.mul(x._base === null ? 2 : 3).mul(x.gradFn === null ? 5 : x.gradFn.name.length);
    const leaf = (): Tensor => ones([2], { requiresGrad: true });
    const frames = same(fn, [
      () => [ones([2])],
      () => [ones([4]).narrow(0, 0, 2)],
      () => [leaf()],
      () => [leaf().exp()],
      () => [leaf().sigmoid()],
    ]);
    assert.equal(frames, 5);
  });

  it('see that the base of an argument is another one', () => {
    same(
      (x: Tensor) => x.mul(x._base as Tensor),
      [() => [tensor([2, 3]).narrow(0, 0, 1)], () => [tensor([5, 7]).narrow(0, 0, 1)]].map(
        (args) => args,
      ) as never,
    );
    const fn = compile((x: Tensor) => x.add(x._base?.narrow(0, 1, 1) as Tensor), {
      fullgraph: true,
    });
    for (const [a, b] of [
      [1, 2],
      [3, 4],
    ] as [number, number][])
      assert.deepEqual(list(fn(tensor([a, b]).narrow(0, 0, 1))), [a + b]);
  });

  it('see that an argument is a Parameter', () => {
    same(
      (x: Tensor) => x.mul(x instanceof nn.Parameter ? 2 : 3),
      [() => [new nn.Parameter(ones([1]), false)], () => [ones([1])]],
    );
  });

  it('see that an argument is a parameter of a module that the function calls', () => {
    const layer = new nn.Linear(2, 2, { bias: false });
    const fn = compile((w: Tensor) => layer(w), { fullgraph: true });
    const other = ones([2, 2], { requiresGrad: true });
    for (const w of [layer.weight, other, layer.weight, other])
      assert.deepEqual(list(fn(w)), list(layer(w)));
    const reversed = compile((w: Tensor) => layer(w), { fullgraph: true });
    for (const w of [other, layer.weight, other])
      assert.deepEqual(list(reversed(w)), list(layer(w)));
  });

  it('see that an argument is a constant of another graph', () => {
    const w = tensor([2, 3]);
    const fn = compile((x: Tensor) => x.add(w), { fullgraph: true });
    for (const x of [zeros([2]), w, zeros([2])]) assert.deepEqual(list(fn(x)), list(x.add(w)));
  });

  it('see that arguments share memory in another pattern', () => {
    const fn = (a: Tensor, b: Tensor, c: Tensor): Tensor => (a.add_(1), b.add_(c));
    const parts = (): Tensor[] => {
      const whole = zeros([4]);
      return [whole.narrow(0, 0, 2), whole.narrow(0, 1, 2), zeros([2])];
    };
    noGrad(() => {
      const frames = same(fn, [
        parts,
        () => {
          const [a, b, c] = parts() as [Tensor, Tensor, Tensor];
          return [a, zeros([4]).narrow(0, 1, 2), c, b];
        },
        () => [0, 2, 1].map((i) => parts()[i] as Tensor),
      ]);
      assert.equal(frames, 3);
    });
  });

  it('see lossParallel', () => {
    const counter = CompileCounter();
    const fn = compile((x: Tensor) => x.add(1), { backend: counter, fullgraph: true });
    fn(ones([1]));
    lossParallel(() => fn(ones([1])));
    fn(ones([1]));
    assert.equal(counter.frameCount, 2);
  });
});

describe('the guards of compile on modules', () => {
  it('see an attribute that is added later, and one that is deleted', () => {
    class Net extends nn.Module {
      declare extra?: number;
      forward(x: Tensor): Tensor {
        return x.mul(this.extra ?? 2);
      }
    }
    const net = new Net();
    const counter = CompileCounter();
    const fn = compile((x: Tensor) => net(x), { backend: counter, fullgraph: true });
    const run = (): unknown => list(fn(ones([1])));
    assert.deepEqual([run(), run()], [[2], [2]]);
    net.extra = 3;
    assert.deepEqual([run(), run()], [[3], [3]]);
    delete net.extra;
    assert.deepEqual([run(), run()], [[2], [2]]);
    assert.equal(counter.frameCount, 2);
  });

  it('see a method that is replaced', () => {
    class Net extends nn.Module {
      forward(x: Tensor): Tensor {
        return this.twice(x);
      }
      twice(x: Tensor): Tensor {
        return x.mul(2);
      }
    }
    const net = new Net();
    const fn = compile((x: Tensor) => net(x), { fullgraph: true });
    assert.deepEqual(list(fn(ones([1]))), [2]);
    net.twice = (x) => x.mul(3);
    assert.deepEqual(list(fn(ones([1]))), [3]);
    net.forward = (x) => x.mul(4);
    assert.deepEqual(list(fn(ones([1]))), [4]);
  });

  it('see members of a container that are added, replaced, and moved', () => {
    const net = new nn.Sequential(new nn.ReLU());
    const fn = compile((x: Tensor) => net(x), { fullgraph: true });
    const x = tensor([-1, 2]);
    const check = (): void => assert.deepEqual(list(fn(x)), list(net(x)));
    check();
    net.append(new nn.Sigmoid());
    check();
    net.registerModule('0', new nn.Tanh());
    check();
    const { 0: first } = net as unknown as Record<number, nn.Module>;
    delete (net as unknown as Record<number, nn.Module>)[0];
    check();
    net.registerModule('0', first as nn.Module);
    check();
  });

  it('see hooks and flags of a module that changed while other graphs ran', () => {
    const [a, b] = [new nn.Dropout(0.999999), new nn.Dropout(0.999999)];
    const fn = compile((x: Tensor, m: nn.Dropout) => m(x), { fullgraph: true });
    const run = (m: nn.Dropout): unknown => list(fn(ones([2]), m));
    assert.deepEqual(
      [run(a), run(b)],
      [
        [0, 0],
        [0, 0],
      ],
    );
    a.eval();
    assert.deepEqual(
      [run(b), run(a), run(b), run(a)],
      [
        [0, 0],
        [1, 1],
        [0, 0],
        [1, 1],
      ],
    );
    const handle = b.registerForwardHook((_m, _args, y) => y.add(5));
    assert.deepEqual(
      [run(a), run(b)],
      [
        [1, 1],
        [5, 5],
      ],
    );
    handle.remove();
    assert.deepEqual(
      [run(a), run(b)],
      [
        [1, 1],
        [0, 0],
      ],
    );
  });
});
