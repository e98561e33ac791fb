import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import type { CompileBackend, GraphModule } from '../../../lib/compile/index.js';
import {
  CompileError,
  compile,
  noGrad,
  ones,
  type Tensor,
  tensor,
  zeros,
} from '../../../lib/index.js';

function listing(): { graphs: string[][]; backend: CompileBackend } {
  const graphs: string[][] = [];
  const backend = (module: GraphModule) => {
    graphs.push(module.graph.callNodes.map((node) => node.op?.name ?? ''));
    return module.forward.bind(module);
  };
  return { graphs, backend };
}

describe('an asynchronous function', () => {
  it('records its ops over awaits, up to a value', async () => {
    const { graphs, backend } = listing();
    const fn = compile(
      async (x: Tensor) => {
        let y = x.mul(2);
        await Promise.resolve();
        y = y.add(1);
        const [first] = (await y.read()) as Float32Array;
        await null;
        return y.mul(first as number).sin();
      },
      { backend },
    );
    const expected = ones([2]).mul(9).sin().tolist();
    assert.deepEqual((await fn(ones([2]))).tolist(), expected);
    for (let i = 0; i < 3; i++) assert.deepEqual((await fn(ones([2]))).tolist(), expected);
    assert.deepEqual(graphs, [
      ['mul', 'add'],
      ['mul', 'sin'],
    ]);
  });

  it('does not make a device wait while it waits', async () => {
    const { graphs, backend } = listing();
    const fn = compile(
      async (x: Tensor) => {
        const y = x.mul(2);
        await sleep(5);
        assert.deepEqual(graphs[0], ['mul']);
        return y.add(1);
      },
      { backend },
    );
    for (let i = 0; i < 3; i++) assert.deepEqual((await fn(ones([1]))).tolist(), [3]);
  });

  it('shares tensors with code that runs while it waits', async () => {
    const state = zeros([2]);
    let latest = state;
    const fn = compile(async (x: Tensor) => {
      state.add_(x);
      latest = state.mul(2);
      await null;
      const seen = state.tolist();
      state.add_(1);
      return seen;
    });
    for (let i = 0; i < 3; i++) {
      state.zero_();
      const result = fn(ones([2]));
      // What it has called has an effect on code that is not compiled.
      assert.deepEqual(latest.add(state).tolist(), [3, 3]);
      state.mul_(10);
      assert.deepEqual(await result, [10, 10]);
      assert.deepEqual(state.tolist(), [11, 11]);
    }
  });

  it('runs beside other calls of itself', async () => {
    const fn = compile(async (x: Tensor, steps: number) => {
      let y = x;
      for (let i = 0; i < steps; i++) {
        y = y.mul(2);
        await null;
        if (i % 2 === 0) y = y.add(((await y.sub(y).sum().read()) as Float32Array)[0] as number);
      }
      return y;
    });
    const run = async (): Promise<unknown> =>
      (await Promise.all([1, 2, 3].map((n) => fn(ones([n]), n)))).map((t) => t.tolist());
    const first = await run();
    for (let i = 0; i < 3; i++) assert.deepEqual(await run(), first);
    assert.deepEqual(first, [[2], [4, 4], [8, 8, 8]]);
  });

  it('rejects with its own error, after what it has called', async () => {
    const buffer = zeros([1]);
    const fn = compile(async () => {
      buffer.add_(1);
      await null;
      buffer.add_(1);
      throw new RangeError('as eagerly');
    });
    for (let i = 1; i < 4; i++) {
      await assert.rejects(fn(), RangeError);
      assert.deepEqual(buffer.tolist(), [2 * i]);
    }
  });

  it('gets the error of a backend that fails while it waits', async () => {
    const fn = compile(
      async (x: Tensor) => {
        const y = x.mul(2);
        await sleep(5);
        return y.add(1);
      },
      {
        backend: () => {
          throw new CompileError('no code for mul');
        },
      },
    );
    for (let i = 0; i < 2; i++) await assert.rejects(fn(ones([1])), /no code for mul/);
    assert.deepEqual(ones([1]).add(1).tolist(), [2]);
  });

  it('captures the modules that it calls after an await', async () => {
    const { graphs, backend } = listing();
    const { nn } = await import('../../../lib/index.js');
    const model = new nn.Tanh();
    const fn = compile(
      async (x: Tensor) => {
        await null;
        return model(x.mul(2));
      },
      { backend },
    );
    for (let i = 0; i < 2; i++)
      assert.deepEqual((await fn(ones([1]))).tolist(), ones([1]).mul(2).tanh().tolist());
    assert.deepEqual(graphs, [['mul'], ['tanh']]);
    model(ones([3]));
    assert.equal(graphs.length, 2);
  });

  it('records nothing of what it started and left, once it has ended', async () => {
    const { graphs, backend } = listing();
    const left: Promise<unknown>[] = [];
    const fn = compile(
      async (x: Tensor) => {
        left.push(sleep(5).then(() => x.mul(2).tolist()));
        return x.add(1);
      },
      { backend },
    );
    const other = compile(async () => sleep(10), { backend });
    for (let i = 0; i < 2; i++) {
      const waiting = other(); // so that functions go on after others
      assert.deepEqual((await fn(ones([1]))).tolist(), [2]);
      assert.deepEqual(await left.pop(), [2]);
      await waiting;
    }
    assert.deepEqual(graphs, [['add']]);
  });

  it('has gradients', async () => {
    const fn = compile(async (x: Tensor) => {
      const y = x.square();
      await null;
      return y.mul(noGrad(() => y.sum())).sum();
    });
    for (let i = 0; i < 3; i++) {
      const x = tensor([1, 2]).requiresGrad_();
      (await fn(x)).backward();
      assert.deepEqual(x.grad?.tolist(), [10, 20]);
    }
  });
});
