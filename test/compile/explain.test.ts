/** `compiler.explain` reports graphs, guards, breaks and recaptures. */
import assert from 'node:assert/strict';
import { inspect } from 'node:util';
import type { CompileReport } from '../../lib/compile/explain.js';
import {
  ArgumentError,
  compile,
  compiler,
  graphBreak,
  nn,
  ones,
  scope,
  type Tensor,
} from '../../lib/index.js';

class Halve extends nn.Module {
  factor = 2;
  forward(x: Tensor): Tensor {
    return x.div(this.factor);
  }
}

class Reads extends nn.Module {
  forward(x: Tensor): Tensor {
    return x.mul(x.sum().item<number>());
  }
}

describe('compiler.explain', () => {
  it('reports the graph of a function, its ops and its guards with paths', () => {
    const model = new nn.Sequential(new Halve());
    const report = compiler.explain(function scaled(x: Tensor, options: { k: number }) {
      return model(x).mul(options.k);
    })(ones([2, 3]), { k: 5 });
    assert.deepEqual((report.result as Tensor).tolist(), ones([2, 3]).mul(2.5).tolist());
    assert.equal(report.graphs.length, 1);
    const [graph] = report.graphs;
    assert.deepEqual([graph?.functionName, graph?.opCount], ['scaled', 2]);
    for (const guard of [
      'argument 0 is float32[2, 3] on cpu',
      'argument 1.k is 5',
      'model.0.factor is 2',
      'model.0.training is true',
      'model.0 has no hooks',
      'the grad mode is on',
      'the default dtype is float32',
      'mixed precision is off',
    ])
      assert.ok(graph?.guards.includes(guard), `${guard} in\n${graph?.guards.join('\n')}`);
    assert.match(String(report), /^1 graph, 0 breaks, 0 recaptures\ngraph 0 of scaled, 2 ops:\n/);
    assert.match(String(report), /%div: float32\[2, 3\] = div\(%arg, 2\)|%div/);
    assert.equal(inspect(report), String(report));
  });

  for (const dynamic of [false, true])
    it(`reports why a graph runs op by op through autograd, dynamic ${dynamic}`, () => {
      const w = ones([2], { requiresGrad: true });
      const shared = (x: Tensor, y: Tensor): Tensor => y.mul(x.mul_(3)).mul(w);
      const call = (fn: typeof shared) => {
        const both = ones([2, 4, 2]);
        return fn(both.select(0, 0), both.select(0, 0));
      };
      for (const backend of ['aot_eager', 'inductor', 'eager'] as const) {
        const explain = compiler.explain(compile(shared, { backend, dynamic }));
        const report = call(explain as never) as unknown as CompileReport;
        assert.deepEqual((report.result as Tensor).tolist(), call(shared).tolist());
        const [graph] = report.graphs;
        if (backend === 'eager') assert.equal(graph?.unlowered, null);
        else {
          assert.match(graph?.unlowered ?? '', /^memory was changed in place that several inputs/);
          assert.match(String(report), /runs its ops one by one through autograd: memory was/);
        }
      }
    });

  it('reports why a function breaks, where, and in which module', () => {
    const model = new nn.Sequential(new nn.ReLU(), new Reads());
    const report = compiler.explain(model)(ones([2]));
    assert.deepEqual((report.result as Tensor).tolist(), [2, 2]);
    const [found] = report.breaks;
    assert.match(found?.reason ?? '', /^a value of a tensor, float32\[\], was read$/);
    assert.match(found?.site ?? '', /explain\.test\.[jt]s:\d+/);
    assert.equal(found?.path, '1');
    assert.match(String(report), /break of Sequential: a value of .* in module 1/);
  });

  it('reports each place that ends a segment or a frame, once, with its module', () => {
    class Breaks extends nn.Module {
      readonly reads = new Reads();
      readonly halve = new Halve();
      forward(x: Tensor): Tensor {
        const y = x.mul(3);
        graphBreak('a counter was read');
        let z = this.halve(this.reads(y.add(1)));
        for (let i = 0; i < 3; i++) z = z.mul(z.sum().item<number>());
        scope(() => z.add(1));
        return z.exp();
      }
    }
    const outer = new nn.Sequential(new nn.ReLU(), new Breaks());
    const explained = compiler.explain(outer);
    for (const report of [explained(ones([2])), explained(ones([2]))]) {
      const seen = report.breaks.map(({ functionName, reason, path }) => [
        functionName,
        reason,
        path,
      ]);
      const read = 'a value of a tensor, float32[], was read';
      assert.deepEqual(seen.slice(0, 3), [
        ['Sequential', 'a counter was read', '1'],
        ['Breaks', 'a counter was read', '1'],
        ['Reads', read, '1.reads'],
      ]);
      assert.deepEqual(seen.slice(3), [
        ['Breaks', read, '1'],
        ['Breaks', 'a scope began or ended', '1'],
        ['Breaks', 'a scope ended', '1'],
      ]);
      for (const { site } of report.breaks) assert.match(site, /explain\.test\.[jt]s:\d+/);
      assert.equal(new Set(report.breaks.map(({ site }) => site)).size, seen.length - 1);
      assert.match(String(report), /break of Breaks: a scope ended, at .*, in module 1/);
    }
  });

  it('reports reads of a function whose capture ended before them', () => {
    const report = compiler.explain((x: Tensor, y: Tensor) => {
      const both = x.item<number>() + y.item<number>();
      return x.mul(both);
    })(ones([1]), ones([1]));
    assert.deepEqual(
      report.breaks.map(({ reason }) => reason),
      Array(2).fill('a value of a tensor, float32[1], was read'),
    );
  });

  it('reports an attribute that a graph cannot set', () => {
    class Counts extends nn.Module {
      n: number[] = [];
      forward(x: Tensor): Tensor {
        this.n = [...this.n, 1];
        return x.add(this.n.length);
      }
    }
    const report = compiler.explain(new Counts())(ones([1]));
    assert.match(report.breaks[0]?.reason ?? '', /changes Counts\.n/);
  });

  it('reports what was captured again, and what differed from each graph', () => {
    const explained = compiler.explain((x: Tensor, k: number) => x.mul(k));
    explained(ones([2]), 1);
    assert.deepEqual(explained(ones([2]), 1).recaptures, []);
    const report = explained(ones([3]), 1);
    assert.deepEqual(
      report.recaptures.map(({ because }) => because),
      [['argument 0 was float32[2] on cpu and is float32[3] on cpu']],
    );
    assert.deepEqual(
      explained(ones([3]), 2).recaptures.map(({ because }) => because.at(-1)),
      ['argument 0 was float32[2] on cpu and is float32[3] on cpu', 'argument 1 was 1 and is 2'],
    );
  });

  it('reports a compiled function, a compiled module, and a module compiled in place', () => {
    const fn = compile((x: Tensor) => x.add(1));
    fn(ones([1]));
    assert.equal(compiler.explain(fn)(ones([2])).graphs.length, 2);
    const compiled = compile(new nn.ReLU());
    compiled(ones([1]));
    const report = compiler.explain(compiled)(ones([2]));
    assert.deepEqual(
      report.graphs.map((g) => g.functionName),
      ['ReLU', 'ReLU'],
    );
    const inPlace = new nn.ReLU();
    inPlace.compile();
    inPlace(ones([1]));
    assert.deepEqual(
      compiler
        .explain(inPlace)(ones([2]))
        .graphs.map((g) => g.functionName),
      ['ReLU', 'ReLU'],
    );
  });

  it('reports compiled functions that an uncompiled one calls', () => {
    const inner = compile(function twice(x: Tensor) {
      return x.mul(2);
    });
    const outer = compiler.disable((x: Tensor) => inner(x), { recursive: false });
    const report = compiler.explain(outer)(ones([1]));
    assert.deepEqual(
      report.graphs.map((g) => g.functionName),
      ['twice'],
    );
    assert.equal(report.breaks.length, 1);
  });

  it('reports the graphs of modules below a break at every call, and none that it did not run', () => {
    const model = new nn.Sequential(new nn.Linear(2, 2), new Reads(), new Halve());
    const explained = compiler.explain(model);
    const named = (): string[] => explained(ones([2, 2])).graphs.map((g) => g.functionName);
    const first = named();
    for (const name of ['Linear', 'Halve']) assert.ok(first.includes(name), first.join());
    assert.deepEqual(named(), first);
    compile(new nn.ReLU())(ones([2]));
    assert.deepEqual(named(), first);
  });

  it('says what differs in every kind of guard', () => {
    const model = new Halve();
    const explained = compiler.explain((x: Tensor, _options: unknown) => model(x));
    explained(ones([1]), { a: [1, 2], m: new Map([['k', 1]]), s: new Set([1]) });
    const differs = (options: unknown): string | undefined =>
      explained(ones([1]), options).recaptures.at(-1)?.because[0];
    assert.equal(
      differs({ a: [1], m: new Map(), s: new Set() }),
      'argument 1.a.length was 2 and is 1',
    );
    assert.equal(
      differs({ a: [1, 2], m: new Map([['k', 2]]), s: new Set() }),
      "argument 1.m.get('k') was 1 and is 2",
    );
    assert.equal(differs({ a: [1, 2] }), 'the list of keys of argument 1 was a, m, s and is a');
    assert.equal(differs(null), 'argument 1 was an object and is null');
    model.eval();
    assert.match(differs(null) ?? '', /argument 1 was/);
  });

  it('refuses what is no function', () => {
    assert.throws(() => compiler.explain({} as never), ArgumentError);
  });
});
