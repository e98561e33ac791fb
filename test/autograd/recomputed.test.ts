/** `recomputed` is what functions that recompute are written by. */
import assert from 'node:assert/strict';
import { autograd, compile, randn, type Tensor } from '../../lib/index.js';

describe('autograd.recomputed', () => {
  it('runs the function by run, with its arguments and the settings', () => {
    const x = randn([3]);
    const seen: unknown[] = [];
    const y = autograd.recomputed((t: Tensor, k: number) => t.mul(k), [x, 2], {
      run: (fn, args, settings) => (seen.push(args, settings), fn(...args)),
      settings: 'settings',
    });
    assert.deepEqual(y.tolist(), x.mul(2).tolist());
    assert.deepEqual(seen, [[x, 2], 'settings']);
  });

  it('is part of a graph, which calls run where it runs op by op', () => {
    let runs = 0;
    const run = (
      fn: (...all: readonly unknown[]) => unknown,
      args: readonly unknown[],
    ): unknown => (runs++, fn(...args));
    const fn = (t: Tensor): Tensor =>
      autograd.recomputed((u: Tensor) => u.exp().sin(), [t.mul(2)], { run, settings: null });
    const x = randn([3]).requiresGrad_();
    const expected = fn(x).tolist();
    runs = 0;
    for (const [backend, calls] of [
      ['eager', 2],
      ['aot_eager', 0],
    ] as const) {
      const compiled = compile(fn, { fullgraph: true, backend });
      for (let i = 0; i < 2; i++) assert.deepEqual(compiled(x).tolist(), expected);
      assert.equal(runs, calls);
      runs = 0;
    }
  });

  it('refuses what is no function, no list and no policy', () => {
    const x = randn([3]).requiresGrad_();
    const options = { run: (fn: () => unknown) => fn(), settings: 0 } as never;
    const fn = (t: Tensor): Tensor => t;
    assert.throws(() => autograd.recomputed(3 as never, [x], options), /fn/);
    assert.throws(() => autograd.recomputed(fn, x as never, options), /a list of arguments/);
    assert.throws(() => autograd.recomputed(fn, [x], { settings: 0 } as never), /run/);
    const policy = (): never => 'SAVE' as never;
    const run = (
      call: (...all: readonly unknown[]) => unknown,
      args: readonly unknown[],
    ): unknown => call(...args);
    const chosen = compile((t: Tensor) =>
      autograd.recomputed((u: Tensor) => u.exp(), [t], { run, settings: 0, policy }),
    );
    assert.throws(() => chosen(x), /policy.*MUST_SAVE/);
  });
});
