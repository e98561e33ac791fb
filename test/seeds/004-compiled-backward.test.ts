/** Captured backward passes as PyTorch's test_distributed_patterns.py requires them. */
import assert from 'node:assert/strict';
import { type BackwardCompiler, compiledAutograd } from '../../lib/compile/index.js';
import {
  compile,
  compiler,
  manualSeed,
  nn,
  ones,
  rand,
  type Tensor,
  tensor,
} from '../../lib/index.js';
import { CompileCounterWithBackend } from '../../lib/testing/index.js';
import { compiledBy, gathersInHooks, steps, values } from './004-gathered.js';
import { assertClose, BACKENDS, FULL, leavesNoMemory } from './compiled.js';

const asItIs: BackwardCompiler =
  (module) =>
  (...inputs) =>
    module.run(inputs);

class Obj {
  val: Tensor;
  constructor(val: Tensor) {
    this.val = val;
  }
}

interface Counted extends nn.Linear {
  counts: Tensor[];
}

/** A linear layer with backward hooks that count and change gradients, and its input. */
function hooked(allowsEager: boolean): { model: Counted; x: Tensor; runs: () => number } {
  let runs = 0;
  const ran = (module: nn.AnyModule, which: number): void => {
    runs++;
    assert.ok(allowsEager || compiler.isCompiling());
    assert.deepEqual((module as Counted).weight.shape, [10, 10]);
    (module as Counted).counts[which]?.add_(1);
  };
  manualSeed(1234);
  const model = new nn.Linear(10, 10) as unknown as Counted;
  model.counts = [tensor(0), tensor(0)];
  model.registerFullBackwardPreHook((module, [grad]) => {
    ran(module, 0);
    return [(grad as Tensor).add(1.2).sin()];
  });
  model.registerFullBackwardHook((module, [grad]) => {
    ran(module, 1);
    return [(grad as Tensor).add(3.4).sin()];
  });
  return { model, x: rand([2, 10], { requiresGrad: true }), runs: () => runs };
}

function seen({ model, x }: ReturnType<typeof hooked>, out: Tensor): unknown {
  return values(out, x.grad, model.weight.grad, model.bias?.grad, ...model.counts);
}

/** Two such layers, one after the other. */
function hookedPair(allowsEager: boolean) {
  const layers = [hooked(allowsEager), hooked(allowsEager)] as const;
  const [first, second] = layers;
  return {
    layers,
    model: new nn.Sequential(first.model, second.model),
    x: first.x,
    seen: (out: Tensor): unknown => [seen(first, out), seen(second, out)],
  };
}

for (const backend of BACKENDS)
  describe(`captured backward passes, backend ${backend}`, () => {
    leavesNoMemory();

    for (const captures of [true, false])
      it(`seed 004.1: a hook uses what it closes over${captures ? ', in a captured backward' : ''}`, () => {
        const fn = (x: Tensor, obj: Obj): Tensor => {
          const y = x.sin();
          const closed = y.add(1);
          y.registerHook((grad) => grad.add(obj.val).add(closed));
          return y.sin();
        };
        const counter = CompileCounterWithBackend(backend);
        const compiled = compile(fn, { ...FULL, backend: counter });
        const gradients = (run: typeof fn): unknown => {
          const [first, second] = [new Obj(tensor(88)), new Obj(tensor(99))];
          return [first, second, second, first].map((obj, call) => {
            if (call === 3) obj.val.fill_(7);
            const x = ones([4], { requiresGrad: true });
            run(x, obj).sum().backward();
            return x.grad?.tolist();
          });
        };
        const expected = gradients(fn);
        const backwards = CompileCounterWithBackend(backend);
        const enabled = (): unknown =>
          captures
            ? compiledAutograd.enable(compiledBy(backwards), () => gradients(compiled))
            : gradients(compiled);
        assertClose(enabled(), expected);
        assertClose(
          (expected as number[][]).map(([first]) => first).slice(0, 2),
          [48.9015934, 54.8449189],
        );
        // One for each instance, which may have private fields; their tensors may change. Their
        // backward passes run one graph.
        assert.deepEqual([counter.frameCount, backwards.frameCount], [2, captures ? 1 : 0]);
      });

    // With code generation the case has a number of its own.
    const hooks = backend === 'inductor' ? 'seed 004.12' : 'seed 004.10';
    it(`${hooks}: hooks of a module run while backward is captured only`, () => {
      const [eager, other] = [hooked(true), hooked(false)];
      const expected = seen(eager, steps(eager.model, eager.x));
      const [forward, backward] = [
        CompileCounterWithBackend(backend),
        CompileCounterWithBackend(backend),
      ];
      const compiled = compile(other.model, { ...FULL, backend: forward });
      const out = compiledAutograd.enable(compiledBy(backward), () =>
        steps(compiled as (x: Tensor) => Tensor, other.x),
      );
      assertClose(seen(other, out), expected);
      assert.deepEqual(values(...other.model.counts), [4, 4]);
      // Without gradients, and with some.
      assert.deepEqual([forward.frameCount, backward.frameCount], [1, 2]);
      assert.deepEqual([forward.opCount, backward.opCount], [2, backend === 'eager' ? 37 : 43]);
      // A function that is traced with its backward runs its hooks then.
      assert.equal(other.runs(), backend === 'eager' ? 4 : 2);
    });

    it('seed 004.11: hooks of a module are inlined in a pass that is not compiled', () => {
      const [eager, other] = [hooked(true), hooked(true)];
      const expected = seen(eager, steps(eager.model, eager.x));
      const compiled = compile(other.model, { ...FULL, backend });
      const out = compiledAutograd.enable(asItIs, () =>
        steps(compiled as (x: Tensor) => Tensor, other.x),
      );
      assertClose(seen(other, out), expected);
      assert.deepEqual(values(...other.model.counts), [4, 4]);
    });

    for (const captures of [true, false])
      it(`seed 004.13: hooks of two layers run${captures ? ' while backward is captured only' : ', in a backward that is not captured'}`, () => {
        const [eager, other] = [hookedPair(true), hookedPair(!captures)];
        const expected = eager.seen(steps(eager.model, eager.x));
        const [forward, backward] = [
          CompileCounterWithBackend(backend),
          CompileCounterWithBackend(backend),
        ];
        const compiled = compile(other.model, { ...FULL, backend: forward }) as (
          x: Tensor,
        ) => Tensor;
        const run = (): Tensor => steps(compiled, other.x);
        const out = captures ? compiledAutograd.enable(compiledBy(backward), run) : run();
        assertClose(other.seen(out), expected);
        assert.deepEqual(
          other.layers.map(({ model }) => values(...model.counts)),
          [
            [4, 4],
            [4, 4],
          ],
        );
        assert.deepEqual([forward.frameCount, backward.frameCount], [1, captures ? 2 : 0]);
      });

    it('seed 004.18: hooks gather the parameter of a module, and free it', () =>
      gathersInHooks(backend, 'cpu'));
  });
