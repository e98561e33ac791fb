/**
 * `registerMultiGradHook`: hooks that wait for the gradients of several tensors. Reference:
 * PyTorch's `torch.autograd.graph.register_multi_grad_hook`.
 */
import assert from 'node:assert/strict';
import {
  ArgumentError,
  AutogradError,
  autograd,
  memory,
  nn,
  ones,
  scope,
  type Tensor,
  tensor,
} from '../../lib/index.js';

const leaf = (values = [1, 2]): Tensor => tensor(values, { requiresGrad: true });

/** The number of calls of a hook on the tensors. */
function counted(
  tensors: readonly Tensor[],
  options?: autograd.MultiGradHookOptions,
): { calls: number; remove(): void } {
  const counter = { calls: 0, remove: () => handle.remove() };
  const handle = autograd.registerMultiGradHook(tensors, () => void counter.calls++, options);
  return counter;
}

describe('a hook on several tensors', () => {
  it('runs once per pass, when the gradients of all tensors are complete', () => {
    const [a, b] = [leaf(), leaf()];
    const [x, y] = [a.mul(2), b.mul(3)];
    const events: string[] = [];
    x.registerHook(() => void events.push('x'));
    y.registerHook(() => void events.push('y'));
    const handle = autograd.registerMultiGradHook([x, y], () => void events.push('both'));
    const loss = x.mul(y).add(x).sum();
    for (let pass = 0; pass < 2; pass++) loss.backward({ retainGraph: true });
    assert.deepEqual(events, ['y', 'both', 'x', 'y', 'both', 'x']);
    handle.remove();
    loss.backward();
    assert.deepEqual(events.slice(6), ['y', 'x']);
  });

  it('waits in mode all only for the tensors that the pass reaches', () => {
    const [a, b] = [leaf(), leaf()];
    const counter = counted([a, b]);
    a.mul(2).sum().backward();
    assert.equal(counter.calls, 1);
    autograd.grad(a.mul(b).sum(), b);
    assert.equal(counter.calls, 2);
    a.mul(b).sum().backward();
    assert.equal(counter.calls, 3);
    leaf().sum().backward();
    assert.equal(counter.calls, 3);
  });

  it('counts a tensor that gets no gradient as complete', () => {
    class Constant extends autograd.Function {
      static forward(_: autograd.FunctionContext, x: Tensor): Tensor {
        return x.clone();
      }
      static backward(): null {
        return null;
      }
    }
    const [a, b] = [leaf(), leaf()];
    const [all, any, none] = [counted([a, b]), counted([a, b], { mode: 'any' }), leaf()];
    const never = counted([none], { mode: 'any' });
    Constant.apply(a).add(b).add(Constant.apply(none)).sum().backward();
    assert.deepEqual([all.calls, any.calls, never.calls, a.grad], [1, 1, 0, null]);
  });

  it('runs in mode any before the nodes that computed the tensors', () => {
    const w = leaf();
    const ran: string[] = [];
    const watch = (t: Tensor, name: string): Tensor => {
      t.gradFn?.registerPrehook(() => void ran.push(name));
      return t;
    };
    const inner = watch(w.mul(2), 'inner');
    const outputs = [watch(inner.exp(), 'first'), watch(inner.sin(), 'second')] as const;
    autograd.registerMultiGradHook(outputs, () => void ran.push('hook'), { mode: 'any' });
    const loss = watch(outputs[0].add(outputs[1]), 'loss').sum();
    loss.backward();
    assert.deepEqual(ran, ['loss', 'hook', 'second', 'first', 'inner']);
  });

  it('counts several outputs of one node, and a tensor that is listed twice, once', () => {
    const x = tensor([3, 1, 2], { requiresGrad: true });
    const { values } = x.sort();
    const [low, high] = values.split(2) as [Tensor, Tensor];
    const counters = [counted([low, high, low]), counted([low, high], { mode: 'any' })];
    low.sum().add(high.sum()).backward();
    assert.deepEqual(
      counters.map((c) => c.calls),
      [1, 1],
    );
  });

  it('counts nested passes separately', () => {
    const [a, b] = [leaf(), leaf()];
    const [x, y] = [a.mul(2), b.mul(2)];
    const loss = x.mul(y).sum();
    let nested = false;
    const counters = [counted([x, y]), counted([x, y], { mode: 'any' })];
    y.registerHook(() => {
      if (nested) return;
      nested = true;
      loss.backward({ retainGraph: true });
    });
    loss.backward({ retainGraph: true });
    assert.deepEqual(
      counters.map((c) => c.calls),
      [2, 2],
    );
  });

  it('runs in passes that create a graph, and in the pass through that graph', () => {
    const a = leaf();
    const x = a.pow(3);
    const counter = counted([x]);
    const [g] = autograd.grad(x.mul(x).sum(), a, { createGraph: true });
    assert.equal(counter.calls, 1);
    (g as Tensor).sum().backward();
    assert.equal(counter.calls, 2);
  });

  it('makes backward throw its error, and starts to count again in the next pass', () => {
    const [a, b] = [leaf(), leaf()];
    let fails = true;
    let calls = 0;
    a.registerHook(() => {
      if (fails) throw new RangeError('not yet');
    });
    autograd.registerMultiGradHook([a, b], () => void calls++);
    const loss = (): Tensor => a.mul(b).sum();
    assert.throws(() => loss().backward(), RangeError);
    fails = false;
    const before = calls;
    loss().backward();
    assert.equal(calls, before + 1);
  });

  it('causes no copies of gradients and leaves none to the garbage collector', () => {
    const layers = [0, 1].map(() => new nn.Linear(512, 512, { bias: false }));
    const input = ones([8, 512], { requiresGrad: true });
    const parameters = layers.map((layer) => layer.weight);
    const step = (): void =>
      scope(() => {
        const hidden = layers[0]?.forward(input) as Tensor;
        const output = layers[1]?.forward(hidden) as Tensor;
        autograd.registerMultiGradHook([hidden, output], () => {}, { mode: 'any' });
        autograd.registerMultiGradHook([hidden, ...parameters], () => {});
        output.sum().backward();
      });
    memory.collect();
    memory.resetPeak();
    const before = memory.stats();
    step();
    const peak = memory.stats().peakAllocatedBytes - before.allocatedBytes;
    assert.ok(peak < 2.5 * (layers[0]?.weight.nbytes as number), `the peak is ${peak} bytes`);
    for (let i = 0; i < 20; i++) {
      const { tokens } = memory.stats();
      for (const p of [...parameters, input]) p.grad = null;
      step();
      const after = memory.stats().tokens;
      assert.ok(after <= tokens, `${tokens} before the step, ${after} after it`);
    }
  });

  it('never runs if its list of tensors is empty', () => {
    const counter = counted([]);
    leaf().sum().backward();
    assert.equal(counter.calls, 0);
    counter.remove();
  });

  it('is refused for a value that is not a tensor, a tensor that requires no gradient, and an unknown mode', () => {
    const call = autograd.registerMultiGradHook as unknown as (...args: unknown[]) => void;
    assert.throws(() => call([1], () => {}), ArgumentError);
    assert.throws(() => call([leaf()], 'fn'), ArgumentError);
    assert.throws(() => call([leaf()], () => {}, { mode: 'some' }), ArgumentError);
    assert.throws(() => call([leaf(), ones([1])], () => {}), AutogradError);
    assert.throws(() => call([ones([1])], () => {}), /tensors\[0\]/);
  });
});
