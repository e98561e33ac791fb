/** `compiler.beforeCapture`: what a program makes once runs outside of captures. */
import assert from 'node:assert/strict';
import { captureStep } from '../../../lib/compile/index.js';
import {
  ArgumentError,
  CompileError,
  compile,
  compiler,
  nn,
  ones,
  optim,
  randn,
  type Tensor,
} from '../../../lib/index.js';
import { CompileCounterWithBackend } from '../../../lib/testing/index.js';

/** Multiplies by a table that the first call makes, from values, and counts how it is made. */
class LazyTable extends nn.Module<[x: Tensor], Tensor> {
  table: Tensor | null = null;
  made: boolean[] = [];
  forward(x: Tensor): Tensor {
    if (this.table === null) compiler.beforeCapture(() => this.make());
    return x.mul(this.table as unknown as Tensor);
  }
  private make(): void {
    this.made.push(compiler.isCompiling());
    this.table = ones([2]).mul(3 + ones([1]).item<number>());
  }
}

describe('compiler.beforeCapture', () => {
  it('calls the function at once outside of captures', () => {
    const model = new LazyTable();
    assert.deepEqual(model(ones([2])).tolist(), [4, 4]);
    assert.deepEqual(model.made, [false]);
  });

  for (const backend of ['eager', 'aot_eager', 'inductor'] as const) {
    it(`runs once, outside of the capture, on tensors with values, backend ${backend}`, () => {
      const model = new LazyTable();
      const counter = CompileCounterWithBackend(backend);
      const compiled = compile(model, { backend: counter, fullgraph: true });
      for (let call = 0; call < 3; call++) assert.deepEqual(compiled(ones([2])).tolist(), [4, 4]);
      assert.deepEqual(model.made, [false]);
      assert.equal(counter.frameCount, 1);
    });

    it(`serves a compiled function that another one calls, backend ${backend}`, () => {
      const [model, second] = [new LazyTable(), new LazyTable()];
      const counter = CompileCounterWithBackend(backend);
      const inner = compile((x: Tensor) => second(model(x)), { backend: counter, fullgraph: true });
      const outer = compile((x: Tensor) => inner(x).add(1), { backend: counter, fullgraph: true });
      for (let call = 0; call < 3; call++) assert.deepEqual(outer(ones([2])).tolist(), [17, 17]);
      assert.deepEqual([model.made, second.made], [[false], [false]]);
      assert.equal(counter.frameCount, 1);
    });
  }

  it('serves a function that breaks into segments', () => {
    const model = new LazyTable();
    const compiled = compile((x: Tensor) => {
      const y = model(x);
      return y.mul(y.sum().item<number>());
    });
    for (let call = 0; call < 3; call++) assert.deepEqual(compiled(ones([2])).tolist(), [32, 32]);
    assert.deepEqual(model.made, [false]);
  });

  it('is refused in a module that the function makes, which is a frame of its own then', () => {
    class Layer extends LazyTable {
      weight = new nn.Parameter(ones([2]));
      override forward(x: Tensor): Tensor {
        return super.forward(x).mul(this.weight);
      }
    }
    const fn = (x: Tensor): Tensor => new Layer()(x);
    assert.throws(
      () => compile(fn, { fullgraph: true })(ones([2])),
      (error: Error) => error instanceof CompileError && /function makes made/.test(error.message),
    );
    const compiled = compile(fn);
    for (let call = 0; call < 3; call++) assert.deepEqual(compiled(ones([2])).tolist(), [4, 4]);
  });

  it('undoes what the capture had changed before', () => {
    class Counts extends LazyTable {
      calls = 0;
      buffer = ones([2]);
      override forward(x: Tensor): Tensor {
        this.buffer.add_(1);
        const y = super.forward(x);
        return y.add(this.buffer);
      }
    }
    const [plain, model] = [new Counts(), new Counts()];
    const compiled = compile(model, { fullgraph: true });
    for (let call = 0; call < 3; call++)
      assert.deepEqual(compiled(ones([2])).tolist(), plain(ones([2])).tolist());
    assert.deepEqual(model.made, [false]);
  });

  it('runs before a captured step, whose graph uses what it made', () => {
    const [plain, model] = [0, 1].map(() => {
      const layer = new LazyTable();
      return { layer, weight: new nn.Parameter(ones([2])) };
    }) as [Trained, Trained];
    const step = stepOf(model);
    const captured = captureStep(step, [ones([2])]);
    const eager = stepOf(plain);
    for (let i = 0; i < 3; i++) {
      const x = randn([2]);
      assert.deepEqual(captured.run(x).tolist(), eager(x).tolist());
    }
    assert.deepEqual(model.weight.tolist(), plain.weight.tolist());
    assert.deepEqual(model.layer.made, [false]);
  });

  it('is an error of the function if it throws, and is asked again by the next call', () => {
    let fails = true;
    let table: Tensor | null = null;
    const compiled = compile(
      (x: Tensor) => {
        if (table === null)
          compiler.beforeCapture(() => {
            if (fails) throw new RangeError('no table');
            table = ones([2]);
          });
        return x.mul(table as unknown as Tensor);
      },
      { fullgraph: true },
    );
    assert.throws(() => compiled(ones([2])), /no table/);
    fails = false;
    assert.deepEqual(compiled(ones([2])).tolist(), [1, 1]);
  });

  it('ends a capture that asks for it without end with an error, not with a hang', () => {
    const calls: number[] = [];
    const endless = (x: Tensor): Tensor => {
      compiler.beforeCapture(() => void calls.push(1));
      return x.add(1);
    };
    for (const fullgraph of [true, false]) {
      calls.length = 0;
      assert.throws(
        () => compile(endless, { fullgraph })(ones([2])),
        (error: Error) =>
          error instanceof CompileError && /Keep what the function makes/.test(error.message),
      );
      assert.ok(calls.length > 1 && calls.length <= 1000, String(calls.length));
    }
    assert.throws(() => captureStep(endless, [ones([2])]), CompileError);
    assert.deepEqual(endless(ones([1])).tolist(), [2]);
  });

  it('refuses what is no function', () => {
    assert.throws(() => compiler.beforeCapture(null as never), ArgumentError);
  });
});

interface Trained {
  readonly layer: LazyTable;
  readonly weight: nn.Parameter;
}

function stepOf({ layer, weight }: Trained): (x: Tensor) => Tensor {
  const sgd = new optim.SGD([weight], { lr: 0.1, capturable: true });
  return (x) => {
    const loss = layer(x.mul(weight)).square().mean();
    loss.backward();
    sgd.step();
    sgd.zeroGrad();
    return loss;
  };
}
