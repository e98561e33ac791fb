/** Guards cover plain values at any depth, aliasing, gradients, and the contents of modules. */
import assert from 'node:assert/strict';
import {
  ArgumentError,
  compile,
  compiler,
  getFloat32MatmulPrecision,
  nn,
  noGrad,
  setFloat32MatmulPrecision,
  type Tensor,
  tensor,
  zeros,
} from '../../lib/index.js';
import { CompileCounter } from '../../lib/testing/index.js';

const ones = (n: number): Tensor => zeros([n]).add(1);
const list = (t: Tensor): unknown => t.tolist();

class Config {
  scale = 2;
  extra = { list: [1] };
}

class Nested extends nn.Module {
  config = { deep: { scale: 2 } };
  settings = new Config();
  table = new Map([['scale', 2]]);
  weights = [tensor([1.5])];
  forward(x: Tensor): Tensor {
    return x
      .mul(this.config.deep.scale * this.settings.scale * (this.table.get('scale') as number))
      .mul(this.weights[0] as Tensor);
  }
}

class Counting extends nn.Module {
  n = 0;
  forward(x: Tensor): Tensor {
    this.n++;
    return x.mul(this.n);
  }
}

describe('the guards of compile', () => {
  beforeEach(() => {
    compiler.config.recompileLimit = 64;
  });

  afterEach(() => {
    compiler.config.recompileLimit = 8;
  });

  it('distinguish arguments that print alike', () => {
    const fn = compile(
      (x: Tensor, ...rest: unknown[]) => x.mul(rest.length * 10 + (typeof rest[0]).length),
      { fullgraph: true },
    );
    const calls: unknown[][] = [
      ['a|string:b'],
      ['a', 'b'],
      ['a,"b'],
      ['1'],
      [1],
      [1n],
      [true],
      ['true'],
      [null],
      [undefined],
      [[1, 2]],
      [[1], 2],
      [-0],
      [0],
      [[]],
      [{}],
    ];
    for (const rest of calls)
      assert.deepEqual(
        list(fn(ones(1), ...rest)),
        [rest.length * 10 + (typeof rest[0]).length],
        String(rest),
      );
  });

  it('compare plain values of arguments at any depth, and instances by their fields', () => {
    const value = (o: unknown): number =>
      Number(
        JSON.stringify(o instanceof Map ? [...o.values()] : o instanceof Set ? [...o] : o).replace(
          /\D/g,
          '',
        ),
      );
    const fn = compile((x: Tensor, o: unknown) => x.mul(value(o)), { fullgraph: true });
    const changing: [object, () => void][] = [];
    const config = new Config();
    changing.push(
      [config, () => void (config.scale = 5)],
      [config, () => void (config.extra.list[0] = 7)],
    );
    const map = new Map([['k', { v: [2] }]]);
    changing.push([map, () => void map.set('k', { v: [3] })]);
    const set = new Set([1]);
    changing.push([set, () => void set.add(4)]);
    const array = new Float32Array([1, 2]);
    changing.push([array, () => void (array[1] = 3)]);
    const nested = { a: [{ b: 1 }] };
    changing.push([nested, () => void ((nested.a[0] as { b: number }).b = 2)]);
    for (const [object, change] of changing) {
      assert.deepEqual(list(fn(ones(1), object)), [value(object)]);
      change();
      assert.deepEqual(list(fn(ones(1), object)), [value(object)]);
    }
    const cyclic: Record<string, unknown> = {};
    cyclic.self = cyclic;
    class Holder {
      self = this;
    }
    assert.deepEqual(
      list(
        compile((x: Tensor, _o: unknown) => x.add(1), { fullgraph: true })(ones(1), new Holder()),
      ),
      [2],
    );
  });

  it('see that two arguments are one tensor', () => {
    const fn = (a: Tensor, b: Tensor): Tensor => (a === b ? a.mul(2) : a.add(b).mul(100));
    const compiled = compile(fn, { fullgraph: true });
    const [p, q] = [ones(1), ones(1)];
    for (const [a, b] of [
      [p, q],
      [p, p],
      [q, p],
    ] as [Tensor, Tensor][])
      assert.deepEqual(list(compiled(a, b)), list(fn(a, b)));
    const inPlace = compile((a: Tensor, b: Tensor) => (a.add_(1), b.mul(2)), { fullgraph: true });
    inPlace(ones(1), ones(1));
    assert.deepEqual(list(inPlace(p, p)), [4]);
  });

  it('see a gradient that appears', () => {
    const counter = CompileCounter();
    const fn = compile((w: Tensor) => (w.grad === null ? w.mul(1) : w.mul(2)), {
      backend: counter,
    });
    const w = ones(1).requiresGrad_();
    assert.deepEqual([fn(w), fn(w)].map(list), [[1], [1]]);
    w.grad = ones(1);
    assert.deepEqual(list(fn(w)), [2]);
    w.grad = null;
    assert.deepEqual(list(fn(w)), [1]);
    assert.equal(counter.frameCount, 2);
  });

  it('say what a gradient and an object were, and what they are', () => {
    const leaf = zeros([2], { requiresGrad: true });
    const explained = compiler.explain((x: Tensor) => x.mul(leaf.grad ?? 2));
    const because = (): string | undefined => explained(ones(2)).recaptures.at(-1)?.because[0];
    because();
    leaf.grad = ones(2);
    assert.match(because() ?? '', /\.grad was null and is float32\[2\] on cpu$/);
    const view = zeros([3]);
    const based = compiler.explain((x: Tensor, y: Tensor) => x.add(y).add(view));
    based(ones(3), view.narrow(0, 0, 3));
    const report = based(ones(3), zeros([3]).narrow(0, 0, 3)).recaptures.at(-1)?.because[0];
    assert.match(report ?? '', /^argument 1\._base was float32\[3\] on cpu and is another one$/);
  });

  it('see what modules hold at any depth', () => {
    const model = new Nested();
    const outer = new nn.Sequential(model);
    const fn = compile((x: Tensor) => outer(x), { fullgraph: true });
    const changes = [
      () => {},
      () => void (model.config.deep.scale = 3),
      () => void (model.settings.scale = 5),
      () => void model.table.set('scale', 7),
      () => void (model.weights[0] = tensor([2.5])),
    ];
    for (const change of changes) {
      change();
      assert.deepEqual(list(fn(ones(1))), list(outer(ones(1))));
      assert.deepEqual(list(fn(ones(1))), list(outer(ones(1))));
    }
  });

  it('see parameters of a module that is an argument and is not called', () => {
    const fn = compile((x: Tensor, layer: nn.Linear) => x.matmul(layer.weight.t()), {
      fullgraph: true,
    });
    const layer = new nn.Linear(2, 1, { bias: false });
    noGrad(() => layer.weight.fill_(1));
    assert.deepEqual(list(fn(ones(2), layer)), [2]);
    layer.weight = new nn.Parameter(tensor([[2.5, 3.5]]));
    assert.deepEqual(list(fn(ones(2), layer)), [6]);
  });

  it('see the precision of products, where the function reads it', () => {
    const fn = compile((x: Tensor) => x.mul(getFloat32MatmulPrecision() === 'high' ? 2 : 3), {
      fullgraph: true,
    });
    try {
      for (const [precision, value] of [
        ['highest', 3],
        ['high', 2],
        ['highest', 3],
      ] as const) {
        setFloat32MatmulPrecision(precision);
        assert.deepEqual(list(fn(ones(1))), [value]);
      }
    } finally {
      setFloat32MatmulPrecision('highest');
    }
  });

  it('capture a module again whose forward counts, so that it counts as when uncompiled', () => {
    const model = new Counting();
    const fn = compile(model);
    assert.deepEqual(
      [1, 2, 3, 4, 5, 6].map(() => list(fn(ones(1)))),
      [[1], [2], [3], [4], [5], [6]],
    );
    assert.equal(model.n, 6);
  });
});

describe('the options of compile', () => {
  it('are refused if they are misspelt or not supported', () => {
    const fn = (x: Tensor): Tensor => x;
    for (const options of [
      { dynamic: 'yes' },
      { mode: 'max-autotune' },
      { fullGraph: true },
      { backend: 'inductors' },
      { fullgraph: 1 },
    ]) {
      assert.throws(() => compile(fn, options as never), ArgumentError, JSON.stringify(options));
    }
    compile(fn, { dynamic: false, mode: 'default', fullgraph: false, backend: 'eager' });
  });
});
