/** Hooks that graphs call and do not contain: registered, called and followed by callbacks. */
import assert from 'node:assert/strict';
import {
  type BackwardCompiler,
  captureStep,
  compiledAutograd,
} from '../../../lib/compile/index.js';
import {
  autograd,
  CompileError,
  compile,
  compiler,
  nn,
  noGrad,
  ones,
  optim,
  type Tensor,
} from '../../../lib/index.js';
import { CompileCounterWithBackend } from '../../../lib/testing/index.js';

const BACKENDS = ['eager', 'aot_eager', 'aot_eager_decomp_partition', 'inductor'] as const;

/** Two branches with a hook on both results, and what the hook has seen. */
function branches(mode: 'any' | 'all') {
  const seen: string[] = [];
  const hook = autograd.opaqueHook(
    () => void seen.push(compiler.isCompiling() ? 'in a capture' : mode),
    ['branches', mode],
  );
  const fn = (a: Tensor, b: Tensor): Tensor => {
    const [x, y] = [a.mul(2), b.mul(3)];
    autograd.registerMultiGradHook([x, y], hook, { mode });
    return x.mul(y).sum();
  };
  return { seen, fn };
}

const leaf = (value: number): Tensor => ones([2]).mul(value).requiresGrad_();

for (const backend of BACKENDS)
  for (const pass of ['the tape', 'compiledAutograd'] as const)
    describe(`an opaque hook that a compiled function registers (${backend}, ${pass})`, () => {
      const counter = () => CompileCounterWithBackend(backend);
      const around = (fn: () => void): void => {
        const compiler: BackwardCompiler = (graph) => compile(graph, { backend: counter() });
        if (pass === 'the tape') fn();
        else compiledAutograd.enable(compiler, fn);
      };

      for (const mode of ['any', 'all'] as const)
        it(`runs once in each backward pass, and never in a capture, with mode '${mode}'`, () => {
          const { seen, fn } = branches(mode);
          const frames = counter();
          const compiled = compile(fn, { backend: frames, fullgraph: true });
          for (let call = 1; call < 4; call++) {
            const [a, b] = [leaf(call), leaf(5)];
            const loss = compiled(a, b);
            assert.equal(seen.length, call - 1);
            around(() => loss.backward());
            assert.deepEqual(seen, Array(call).fill(mode));
            assert.deepEqual(
              [a.grad?.tolist(), b.grad?.tolist()],
              [
                [30, 30],
                [6 * call, 6 * call],
              ],
            );
          }
          assert.equal(frames.frameCount, 1);
        });

      it('fills memory before the gradients that read it', () => {
        const weight = ones([2]).mul(7);
        let fills = 0;
        const hook = autograd.opaqueHook(
          () => {
            fills++;
            weight.untypedStorage().resize_(8);
            noGrad(() => autograd.unsafePreserveVersionCounter(weight, () => weight.fill_(7)));
          },
          ['fills', weight],
          { memory: () => [weight] },
        );
        const fn = (x: Tensor): Tensor => {
          const y = x.mul(weight);
          if (y.requiresGrad) autograd.registerMultiGradHook([y], hook, { mode: 'any' });
          return y;
        };
        const compiled = compile(fn, { backend: counter(), fullgraph: true });
        for (let call = 0; call < 3; call++) {
          const x = leaf(2);
          const y = compiled(x);
          assert.deepEqual(y.tolist(), [14, 14]);
          const loss = y.sum();
          weight.untypedStorage().resize_(0);
          around(() => loss.backward());
          assert.deepEqual(x.grad?.tolist(), [7, 7]);
          assert.equal(fills, call + 1);
        }
      });
    });

describe('an opaque hook that a compiled function registers', () => {
  it('has a handle that removes nothing, and says what to do', () => {
    for (const backend of BACKENDS) {
      const hook = autograd.opaqueHook(() => {}, ['removed']);
      const compiled = compile(
        (x: Tensor) => {
          const y = x.mul(2);
          autograd.registerMultiGradHook([y], hook).remove();
          return y;
        },
        { backend, fullgraph: true },
      );
      assert.throws(
        () => compiled(leaf(1)),
        (error: Error) =>
          error instanceof CompileError && /Register it only where/.test(error.message),
      );
    }
  });
});

describe('an opaque hook in a captured step', () => {
  /** A step whose hook queues a callback, and the events of its runs. */
  function recordedStep() {
    const events: string[] = [];
    const weight = new nn.Parameter(ones([2]));
    const sgd = new optim.SGD([weight], { lr: 0.5, capturable: true });
    const hook = autograd.opaqueHook(() => {
      events.push('hook');
      autograd.queueCallback(() => void events.push('end'));
    }, ['step', weight]);
    const step = (x: Tensor): Tensor => {
      const losses = [1, 2].map((factor) => {
        const y = x.mul(weight).mul(factor);
        autograd.registerMultiGradHook([y], hook, { mode: 'any' });
        return y.sum();
      }) as [Tensor, Tensor];
      for (const loss of losses) loss.backward();
      sgd.step();
      sgd.zeroGrad();
      return losses[0].add(losses[1]).detach();
    };
    return { events, weight, step };
  }

  it('runs in its backward pass, at whose end its callbacks run, as without a capture', () => {
    const [eager, captured] = [recordedStep(), recordedStep()];
    const step = captureStep(captured.step, [ones([2])]);
    assert.deepEqual(captured.events, []);
    const kinds = step.graph.nodes.flatMap(({ effect }) => effect ?? []);
    assert.deepEqual(
      kinds.filter((kind) => /Pass$|Opaque/.test(kind)),
      ['beginPass', 'callOpaque', 'endPass', 'beginPass', 'callOpaque', 'endPass'],
    );
    for (let i = 0; i < 3; i++) {
      const x = ones([2]).mul(i + 1);
      assert.deepEqual(step.run(x).tolist(), eager.step(x).tolist());
      assert.deepEqual(captured.weight.tolist(), eager.weight.tolist());
    }
    assert.deepEqual(captured.events, eager.events);
    assert.deepEqual(captured.events.slice(0, 4), ['hook', 'end', 'hook', 'end']);
  });

  it('is the ops that it gives for whole steps, and runs in no step then', () => {
    const weight = new nn.Parameter(ones([2]));
    const total = ones([2]);
    const seen: (object | null)[] = [];
    const count = (): void => void noGrad(() => total.add_(1));
    const inSteps = (): void => {
      seen.push(compiler.capturedStep());
      count();
    };
    const hook = autograd.opaqueHook(() => assert.fail('the hook ran'), ['ops', weight], {
      inSteps,
    });
    const step = captureStep(
      (x: Tensor) => {
        const y = x.mul(weight);
        autograd.registerMultiGradHook([y], hook, { mode: 'any' });
        y.sum().backward();
        weight.grad = null;
        return compiler.capturedStep() === seen[0];
      },
      [ones([2])],
    );
    assert.ok(seen.length === 1 && seen[0] !== null);
    assert.equal(compiler.capturedStep(), null);
    assert.ok(!step.graph.nodes.some(({ effect }) => effect === 'callOpaque'));
    for (let i = 0; i < 3; i++) assert.equal(step.run(ones([2])), true);
    assert.deepEqual(total.tolist(), [4, 4]);
  });

  it('ends its pass where it throws, so that the next run begins one of its own', () => {
    const weight = new nn.Parameter(ones([2]));
    const state = { fails: true, errors: 0, ends: 0 };
    const hook = autograd.opaqueHook(() => {
      autograd.queueCallback(
        () => void state.ends++,
        () => void state.errors++,
      );
      if (state.fails) throw new RangeError('in the hook');
    }, ['failing', weight]);
    const step = captureStep(
      (x: Tensor) => {
        const y = x.mul(weight);
        autograd.registerMultiGradHook([y], hook, { mode: 'any' });
        y.sum().backward();
        const grad = (weight.grad as Tensor).clone();
        weight.grad = null;
        return grad;
      },
      [ones([2])],
    );
    assert.throws(() => step.run(ones([2])), /in the hook/);
    assert.deepEqual([state.errors, state.ends], [1, 0]);
    state.fails = false;
    assert.deepEqual(step.run(ones([2]).mul(4)).tolist(), [4, 4]);
    assert.deepEqual([state.errors, state.ends], [1, 1]);
    assert.throws(() => autograd.queueCallback(() => {}), /backward/);
  });
});
