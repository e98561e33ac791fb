/**
 * What compiled functions refuse: too many captures, aborted captures, freed tensors, bad backends.
 */
import assert from 'node:assert/strict';
import {
  ArgumentError,
  CompileError,
  compile,
  compiler,
  FreedError,
  memory,
  nn,
  ones,
  scope,
  type Tensor,
  tensor,
  zeros,
} from '../../lib/index.js';
import { CompileCounter } from '../../lib/testing/index.js';
import { warningsOf } from './warnings.js';

const list = (t: Tensor): unknown => t.tolist();

class Scale extends nn.Module {
  factor = 0;
  forward(x: Tensor): Tensor {
    return x.mul(this.factor);
  }
}

describe('the recompile limit', () => {
  it('makes a function run uncompiled, with one warning that names what changed', async () => {
    const counter = CompileCounter();
    const fn = compile(
      function scaled(x: Tensor, options: { k: number }) {
        return x.mul(options.k);
      },
      { backend: counter },
    );
    const found = await warningsOf(() => {
      for (let k = 0; k < 200; k++) assert.deepEqual(list(fn(ones([1]), { k })), [k]);
      assert.deepEqual(list(fn(ones([1]), { k: 3 })), [3], 'a graph that is there serves');
    });
    assert.equal(counter.frameCount, 8);
    assert.equal(found.length, 1);
    assert.match(found[0] as string, /^compile: scaled was captured 8 times/);
    assert.match(
      found[0] as string,
      /argument 1\.k was 0 and is 1; .*argument 1\.k was 7 and is 8/,
    );
  });

  it('names the path of a module attribute', async () => {
    const model = new nn.Sequential(new Scale());
    const fn = compile((x: Tensor) => model(x));
    const found = await warningsOf(() => {
      for (let k = 0; k < 10; k++) {
        (model as unknown as Scale[])[0]!.factor = k;
        assert.deepEqual(list(fn(ones([1]))), [k]);
      }
    });
    assert.equal(found.length, 1);
    assert.match(found[0] as string, /model\.0\.factor was 6 and is 7/);
  });

  it('is an error with fullgraph that says the same', () => {
    const fn = compile((x: Tensor) => x.add(1), { fullgraph: true, dynamic: false });
    for (let n = 1; n <= 8; n++) fn(ones([n]));
    assert.throws(
      () => fn(ones([9])),
      (error: Error) =>
        error instanceof CompileError &&
        /argument 0 was float32\[8\] on cpu and is float32\[9\] on cpu/.test(error.message),
    );
    assert.deepEqual(list(fn(ones([2]))), [2, 2]);
  });

  it('can be set, and is checked', () => {
    compiler.config.recompileLimit = 2;
    try {
      const counter = CompileCounter();
      const fn = compile((x: Tensor) => x.add(1), { backend: counter, fullgraph: true });
      fn(ones([1]));
      fn(ones([2]));
      assert.throws(() => fn(ones([3])), CompileError);
      assert.equal(counter.frameCount, 2);
    } finally {
      compiler.config.recompileLimit = 8;
    }
    for (const bad of [0, 1.5, Number.NaN, '3'])
      assert.throws(() => {
        compiler.config.recompileLimit = bad as number;
      }, ArgumentError);
    assert.equal(compiler.config.recompileLimit, 8);
    for (const bad of [-1, Number.NaN, Number.POSITIVE_INFINITY, '3'])
      assert.throws(() => {
        compiler.config.compileTimeoutMs = bad as number;
      }, ArgumentError);
    assert.equal(compiler.config.compileTimeoutMs, 1_800_000);
  });
});

describe('a capture that a signal cancels', () => {
  it('is a CompileError, also without fullgraph, and leaves everything as it was', () => {
    const controller = new AbortController();
    const model = new nn.Linear(2, 2);
    const fn = compile(
      (x: Tensor, cancel: boolean) => {
        const y = model(x);
        if (cancel) controller.abort(new Error('the server stops'));
        return y.relu();
      },
      { signal: controller.signal },
    );
    const x = ones([1, 2]);
    const expected = list(model(x).relu());
    assert.deepEqual(list(fn(x, false)), expected);
    const before = memory.stats().allocatedBytes;
    assert.throws(
      () => fn(x, true),
      (error: Error) =>
        error instanceof CompileError &&
        error.cause === controller.signal.reason &&
        /the server stops/.test(error.message),
    );
    assert.equal(memory.stats().allocatedBytes, before);
    assert.equal(compiler.isCompiling(), false);
    assert.equal(model.weight.isFake || x.isFake, false);
    assert.deepEqual(list(model(x).relu()), expected);
    assert.deepEqual(list(fn(x, false)), expected, 'a graph that is there runs');
    assert.throws(() => fn(ones([3, 2]), false), CompileError);
  });

  it('refuses a signal that is none', () => {
    assert.throws(() => compile((x: Tensor) => x, { signal: {} as AbortSignal }), ArgumentError);
  });
});

describe('a compiled function inside another one', () => {
  it('becomes a part of the outer graph', () => {
    const [inner, outer] = [CompileCounter(), CompileCounter()];
    const square = compile((x: Tensor) => x.mul(x), { backend: inner });
    const fn = compile((x: Tensor) => square(x).add(1), { backend: outer, fullgraph: true });
    for (let i = 0; i < 2; i++) {
      const x = tensor([3], { requiresGrad: true });
      fn(x).sum().backward();
      assert.deepEqual([list(fn(x)), list(x.grad as Tensor)], [[10], [6]]);
    }
    assert.deepEqual([inner.frameCount, outer.frameCount, outer.opCount], [0, 1, 2]);
    assert.deepEqual([list(square(tensor([4]))), inner.frameCount], [[16], 1]);
  });

  it('may not leave a history that backward has not ended', () => {
    const x = tensor([3], { requiresGrad: true });
    const fn = (t: Tensor): Tensor => {
      t.mul(t).sum().backward();
      return t.mul(t);
    };
    assert.throws(
      () => compile(fn, { fullgraph: true })(x),
      (error: Error) => error instanceof CompileError && /backward/.test(error.message),
    );
    assert.equal(x.grad, null);
    for (let i = 1; i <= 2; i++) {
      assert.deepEqual(list(compile(fn)(x)), [9]);
      assert.deepEqual(list(x.grad as unknown as Tensor), [6 * i]);
    }
  });
});

describe('a compiled function that gets a freed tensor', () => {
  it('names the argument', () => {
    const fn = compile(function shifted(x: Tensor, { bias }: { bias: Tensor }) {
      return x.add(bias);
    });
    for (const warm of [false, true]) {
      if (warm) fn(ones([2]), { bias: ones([2]) });
      const bias = ones([2]);
      bias.dispose();
      assert.throws(
        () => fn(ones([2]), { bias }),
        (error: Error) =>
          error instanceof FreedError &&
          /^compile: argument 1\.bias of shifted, float32\[2\], was freed before the call/.test(
            error.message,
          ),
      );
    }
    const ended = scope(() => {
      const t = ones([2]);
      return [() => t] as const;
    })[0]();
    assert.throws(() => fn(ended, { bias: ones([2]) }), /argument 0 of shifted/);
  });

  it('names the function and the line that use one beside the arguments', () => {
    const outer = ones([2]);
    const layer = new nn.Sequential(new nn.Linear(2, 2));
    for (const backend of ['eager', 'aot_eager'] as const) {
      const outside = ones([2]);
      const fn = compile(
        function shifted(x: Tensor) {
          return x.mul(outside);
        },
        { backend },
      );
      fn(outer);
      outside.dispose();
      const says =
        /^compile: outside, float32\[2\], which shifted uses at shifted \(.*limits\.test\.[jt]s:\d+:\d+\), was freed before the call \(dispose/;
      for (const x of [outer, outer, ones([3, 2])])
        assert.throws(
          () => fn(x),
          (error: Error) => error instanceof FreedError && says.test(error.message),
        );
    }
    (layer as unknown as nn.Linear[])[0]!.weight.dispose();
    assert.throws(
      () => compile(layer)(ones([1, 2])),
      /^FreedError.*: compile: Sequential\.0\.weight, float32\[2, 2\], which Sequential uses at/,
    );
  });

  it('ignores it if it is not used', () => {
    const fn = compile((x: Tensor, _unused: Tensor) => x.add(1), { fullgraph: true });
    const gone = ones([2]);
    fn(ones([1]), gone);
    gone.dispose();
    for (let i = 0; i < 2; i++) assert.deepEqual(list(fn(ones([1]), gone)), [2]);
  });
});

describe('a backend', () => {
  it('that calls the function that it compiles is refused', () => {
    for (const whileCompiling of [true, false]) {
      const fn: (x: Tensor) => Tensor = compile((x: Tensor) => x.mul(2), {
        backend: function greedy() {
          if (whileCompiling) fn(ones([1]));
          return (x: Tensor) => [fn(x)];
        } as never,
      });
      for (let i = 0; i < 2; i++)
        assert.throws(
          () => fn(ones([1])),
          (error: Error) =>
            error instanceof CompileError &&
            /the backend greedy calls the function that it compiles/.test(error.message),
        );
    }
  });

  const layer = new nn.Sequential(new nn.Linear(2, 3));
  const refused = (backend: unknown, message: RegExp): void =>
    assert.throws(
      () =>
        compile((x: Tensor) => [layer(x), x.sum()], { backend: backend as never })(ones([4, 2])),
      (error: Error) => error instanceof CompileError && message.test(error.message),
    );

  it('that returns no function is refused', () => {
    refused(
      function lazy() {},
      /the backend lazy returned undefined for the graph of .*, and not a function/,
    );
    refused(() => [ones([1])], /returned \[a Tensor\] for .* and not a function/);
  });

  it('whose function returns too few outputs is refused with the node that is missing', () => {
    refused(() => () => zeros([1]), /returned a Tensor instead of an array/);
    refused(
      () => () => [],
      /0 outputs instead of 2; the first missing is %matmul, float32\[4, 3\], of module 0, called at .*limits\.test\.[jt]s/,
    );
    refused(() => () => [zeros([4, 3])], /1 output instead of 2; the first missing is %sum/);
    refused(() => () => [zeros([4, 3]), zeros([]), zeros([])], /3 outputs instead of 2/);
  });

  it('whose function returns other shapes or dtypes is refused with the node', () => {
    refused(
      () => () => [zeros([3, 4]), zeros([])],
      /float32\[3, 4\] as output 0, which is %matmul/,
    );
    refused(
      () => () => [zeros([4, 3]), zeros([], { dtype: 'int64' })],
      /int64\[\] as output 1, which is %sum, float32\[\]/,
    );
    refused(() => () => [zeros([4, 3]), 1], /returned 1 as output 1, which is %sum/);
  });
});
