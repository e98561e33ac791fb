/** What a compiled function closes over is watched, so that no graph goes on with old values. */
import assert from 'node:assert/strict';
import { captureStep } from '../../../lib/compile/index.js';
import {
  CompileError,
  compile,
  compiler,
  nn,
  noGrad,
  ones,
  optim,
  type Tensor,
} from '../../../lib/index.js';

const first = (t: Tensor): number => t.max().item() as number;
const x = (): Tensor => ones([2]);

/** The first elements of as many results. */
const calls = (fn: (t: Tensor) => Tensor, count: number): number[] =>
  Array.from({ length: count }, () => first(fn(x())));

/** How often a function is captured. */
function counting(): { count: () => number; backend: (module: { forward: unknown }) => never } {
  let captures = 0;
  return {
    count: () => captures,
    backend: ((module: { forward: (...args: never[]) => unknown }) => {
      captures++;
      return module.forward.bind(module);
    }) as never,
  };
}

let scale = 2;
const scaled = (t: Tensor): Tensor => t.mul(scale);

class Scaled extends nn.Module<[t: Tensor], Tensor> {
  scale = 1;
  readonly steps: number[] = [];
  mean = ones([1]);
  override forward(t: Tensor): Tensor {
    return t.mul(this.scale).mul(this.mean);
  }
}

describe('a compiled function that closes over', () => {
  it('a number sees another one at the second call', () => {
    let factor = 2;
    const fn = compile((t: Tensor) => t.mul(factor));
    const before = first(fn(x()));
    factor = 5;
    assert.deepEqual([before, ...calls(fn, 2)], [2, 5, 5]);
  });

  it('a number that changes later sees it within a second', async () => {
    let factor = 2;
    const fn = compile((t: Tensor) => t.mul(factor));
    calls(fn, 20);
    factor = 5;
    for (const end = Date.now() + 1_500; first(fn(x())) !== 5; )
      assert.ok(Date.now() < end, 'the graph goes on with the old number');
  });

  it('an object of settings sees each change at once, and keeps the graphs of both', () => {
    const settings = { scale: 2, nested: { shift: 1 } };
    const { count, backend } = counting();
    const fn = compile((t: Tensor) => t.mul(settings.scale).add(settings.nested.shift), {
      fullgraph: true,
      backend,
    });
    const found = calls(fn, 20).slice(-1);
    for (const [s, shift] of [
      [7, 1],
      [7, 3],
      [2, 1],
    ] as const) {
      Object.assign(settings, { scale: s, nested: { shift } });
      found.push(first(fn(x())));
    }
    assert.deepEqual(found, [3, 8, 10, 3]);
    assert.equal(count(), 3);
  });

  it('arrays, maps, sets, bytes and instances of its own classes sees changes in them', () => {
    const [list, map, set, bytes] = [[2], new Map([['k', 2]]), new Set([2]), new Uint8Array([2])];
    class Config {
      inner = { k: 2 };
    }
    const config = new Config();
    const parts: [read: () => number, change: () => void][] = [
      [() => list[0] as number, () => (list[0] = 5)],
      [() => map.get('k') as number, () => map.set('k', 5)],
      [() => [...set][0] as number, () => (set.clear(), set.add(5))],
      [() => bytes[0] as number, () => (bytes[0] = 5)],
      [() => config.inner.k, () => (config.inner.k = 5)],
    ];
    for (const [i, [read, change]] of parts.entries()) {
      const fn = compile((t: Tensor) => t.mul(read()));
      const before = calls(fn, 20).at(-1);
      change();
      assert.deepEqual([before, first(fn(x()))], [2, 5], `part ${i}`);
    }
  });

  it('a layer that it does not call sees another parameter', () => {
    const layer = new nn.Linear(2, 2, { bias: false });
    const fn = compile((t: Tensor) => t.matmul(layer.weight.t()), { fullgraph: true });
    noGrad(() => fn(x()));
    layer.weight = new nn.Parameter(ones([2, 2]).mul(3));
    assert.equal(first(fn(x())), 6);
  });

  it('a function sees what that closes over, also of a file', () => {
    scale = 2;
    const fn = compile((t: Tensor) => scaled(t));
    const before = first(fn(x()));
    scale = 5;
    assert.deepEqual([before, first(fn(x()))], [2, 5]);
  });

  it('an object with private fields sees them as variables', () => {
    class Counter {
      #k = 2;
      get k(): number {
        return this.#k;
      }
      set(k: number): void {
        this.#k = k;
      }
    }
    const counter = new Counter();
    const fn = compile((t: Tensor) => t.mul(counter.k));
    const before = first(fn(x()));
    counter.set(5);
    assert.deepEqual([before, first(fn(x()))], [2, 5]);
  });

  it('a tensor does not take an argument for it', () => {
    const weight = ones([2]);
    const fn = compile((t: Tensor) => t.mul(weight), { fullgraph: true });
    fn(weight);
    assert.equal(first(fn(ones([2]).mul(3))), 3);
  });

  it('an iterator goes on at every call', () => {
    const steps = [1, 2, 3].values();
    const fn = compile((t: Tensor) => t.mul(steps.next().value as number));
    assert.deepEqual(calls(fn, 3), [1, 2, 3]);
  });

  it('what it does not mention does not capture it again', () => {
    const other = { k: 1 };
    const { count, backend } = counting();
    const fn = compile((t: Tensor) => t.mul(2), { backend });
    for (let i = 0; i < 10; i++) {
      other.k++;
      fn(x());
    }
    assert.equal(count(), 1);
  });

  it('a model and its optimizer is captured once', () => {
    const model = new nn.Linear(2, 2);
    const optimizer = new optim.Adam(model.parameters(), { capturable: true });
    const { count, backend } = counting();
    const loss = compile((t: Tensor) => model(t).square().sum(), { backend });
    for (let i = 0; i < 5; i++) {
      loss(x()).backward();
      optimizer.step();
      optimizer.zeroGrad();
    }
    assert.equal(count(), 1);
    const step = compile(() => optimizer.step(), { backend, fullgraph: true });
    for (let i = 0; i < 3; i++) {
      loss(x()).backward();
      step();
    }
    assert.ok(count() <= 3, `${count()} captures`);
  });
});

describe('a compiled function that changes', () => {
  it('a variable outside of it runs as uncompiled, and is refused with fullgraph', () => {
    let k = 0;
    let state = x();
    const counter = (t: Tensor): Tensor => {
      k++;
      state = state.add(t);
      return state.mul(k);
    };
    assert.deepEqual(calls(compile(counter), 4), [2, 6, 12, 20]);
    assert.equal(k, 4);
    assert.throws(
      () => compile(counter, { fullgraph: true })(x()),
      (error: Error) =>
        error instanceof CompileError && /changes (k|state) when it runs/.test(error.message),
    );
  });

  it('an object outside of it runs as uncompiled, and is refused with fullgraph', () => {
    const state = { k: 0, list: [] as number[] };
    const fn = (t: Tensor): Tensor => {
      state.list.push(++state.k);
      return t.mul(state.list.length);
    };
    assert.deepEqual(calls(compile(fn), 4), [1, 2, 3, 4]);
    assert.deepEqual(state, { k: 4, list: [1, 2, 3, 4] });
    assert.throws(() => compile(fn, { fullgraph: true })(x()), /changes state\.(k|list)/);
    assert.equal(state.k, 4);
  });

  it('a module before it calls that runs as uncompiled', () => {
    const changes: ((m: Scaled) => void)[] = [
      (m) => (m.scale += 1),
      (m) => (m.mean = m.mean.add(1)),
      (m) => m.scale++ && m.steps.push(1),
    ];
    for (const change of changes) {
      const [plain, compiled] = [new Scaled(), new Scaled()];
      const run = (m: Scaled) => (t: Tensor) => {
        change(m);
        return m(t);
      };
      assert.deepEqual(calls(compile(run(compiled)), 4), calls(run(plain), 4));
      assert.deepEqual(compiled.steps, plain.steps);
      assert.equal(compiled.scale, plain.scale);
    }
  });

  it('a module is no step that captureStep takes', () => {
    const m = new Scaled();
    const steps = [
      (t: Tensor) => ((m.scale += 1), m(t)),
      (t: Tensor) => ((m.mean = m.mean.add(1)), t.mul(m.mean)),
    ];
    for (const step of steps)
      assert.throws(() => captureStep(step, [x()]), /m\.(scale|mean) was changed/);
    assert.equal(first(m(x())), 1);
  });
});

describe('compiler.explain', () => {
  it('names the variables that a function closes over', () => {
    let factor = 2;
    const settings = { shift: 1 };
    const fn = compile((t: Tensor) => t.mul(factor).add(settings.shift));
    fn(x());
    factor = 3;
    settings.shift = 4;
    const report = String(compiler.explain(fn)(x()));
    assert.match(report, /(factor was 2 and is 3|settings\.shift was 1 and is 4)/);
  });
});
