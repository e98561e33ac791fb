/**
 * What a compiled function reaches by tensors, bound functions, hooks, weak collections and getters
 * is watched as its variables are.
 */
import assert from 'node:assert/strict';
import { CompileError, compile, compiler, nn, ones, type Tensor } from '../../../lib/index.js';
import { CompileCounter } from '../../../lib/testing/index.js';

type Fn = (t: Tensor) => Tensor;

const x = (): Tensor => ones([1]);

/** A function that multiplies by what `change` changes from 2 to 3. */
interface Case {
  readonly fn: Fn;
  readonly change: () => void;
}

class Scale {
  by = 2;
  apply(t: Tensor): Tensor {
    return t.mul(this.by);
  }
}

class Identity extends nn.Module<[t: Tensor], Tensor> {
  override forward(t: Tensor): Tensor {
    return t.mul(1);
  }
}

/** A tensor with a property of the program. */
const scaled = (t: Tensor = ones([1])): Tensor & { by: number } => Object.assign(t, { by: 2 });

class OfParameter extends nn.Module<[t: Tensor], Tensor> {
  readonly weight = scaled(new nn.Parameter(ones([1])));
  override forward(t: Tensor): Tensor {
    return t.mul(this.weight).mul(this.weight.by);
  }
}

const kinds: Record<string, () => Case> = {
  'a property of a tensor that it closes over': () => {
    const t = scaled();
    return { fn: (u) => u.mul(t.by), change: () => (t.by = 3) };
  },
  'a property of a tensor that is no operand': () => {
    const settings = { by: scaled() };
    return { fn: (u) => u.mul(settings.by.by), change: () => (settings.by.by = 3) };
  },
  'an object in a property of a tensor that leads to itself': () => {
    const t = Object.assign(ones([1]), { settings: { by: 2 }, self: null as unknown });
    t.self = t;
    return { fn: (u) => u.mul(t).mul(t.settings.by), change: () => (t.settings.by = 3) };
  },
  'a property of a parameter': () => {
    const module = new OfParameter();
    return { fn: (u) => module(u), change: () => (module.weight.by = 3) };
  },
  'this of a bound function': () => {
    const settings = { by: 2 };
    const bound = function (this: typeof settings, t: Tensor): Tensor {
      return t.mul(this.by);
    }.bind(settings);
    return { fn: bound, change: () => (settings.by = 3) };
  },
  'this of a bound method that it calls': () => {
    const scale = new Scale();
    const apply = scale.apply.bind(scale);
    return { fn: (t) => apply(t), change: () => (scale.by = 3) };
  },
  'an argument of a bound function': () => {
    const settings = { by: 2 };
    const apply = ((by: typeof settings, t: Tensor) => t.mul(by.by)).bind(null, settings);
    return { fn: (t) => apply(t), change: () => (settings.by = 3) };
  },
  'a variable of a forward hook': () => {
    let by = 2;
    const module = new Identity();
    module.registerForwardHook((_, __, result) => result.mul(by));
    return {
      fn: (t) => module(t),
      change: () => {
        by = 3;
      },
    };
  },
  'an object of a hook before forward': () => {
    const settings = { by: 2 };
    const module = new Identity();
    module.registerForwardPreHook((_, [t]) => [t.mul(settings.by)]);
    return { fn: (t) => module(t), change: () => (settings.by = 3) };
  },
  'what a WeakMap has for a key': () => {
    const key = {};
    const factors = new WeakMap([[key, 2]]);
    return { fn: (t) => t.mul(factors.get(key) ?? 0), change: () => factors.set(key, 3) };
  },
  'whether a WeakSet in an object has a key': () => {
    const key = {};
    const settings = { large: new WeakSet() };
    return {
      fn: (t) => t.mul(settings.large.has(key) ? 3 : 2),
      change: () => settings.large.add(key),
    };
  },
  'what a WeakRef refers to': () => {
    const settings = { by: 2 };
    const reference = new WeakRef(settings);
    return { fn: (t) => t.mul(reference.deref()?.by ?? 0), change: () => (settings.by = 3) };
  },
  'what a getter closes over': () => {
    const settings = { by: 2 };
    const object = {
      get by(): number {
        return settings.by;
      },
    };
    return { fn: (t) => t.mul(object.by), change: () => (settings.by = 3) };
  },
};

describe('a compiled function sees a change of', () => {
  for (const [kind, make] of Object.entries(kinds))
    it(`${kind}, and keeps its graph while there is none`, () => {
      const { fn, change } = make();
      const counter = CompileCounter();
      const compiled = compile(fn, { backend: counter, fullgraph: true });
      const results = Array.from({ length: 10 }, () => compiled(x()).item());
      assert.deepEqual([new Set(results), counter.frameCount], [new Set([2]), 1]);
      change();
      // A variable is seen at a look, which the eighth call, or a second, has made.
      for (const end = Date.now() + 1_500; compiled(x()).item() !== 3; )
        assert.ok(Date.now() < end, 'the graph goes on with the old value');
      assert.equal(fn(x()).item(), 3);
    });
});

describe('a compiled function that changes', () => {
  const changing: Record<string, () => readonly [fn: Fn, path: RegExp]> = {
    'a property of a tensor': () => {
      const t = scaled();
      return [(u) => u.mul(t.by++), /t\.by/];
    },
    'a new property of a tensor': () => {
      const t = ones([1]) as Tensor & { calls?: number };
      return [
        (u) => {
          t.calls = (t.calls ?? 1) + 1;
          return u.mul(t.calls);
        },
        /the function changes t/,
      ];
    },
    'this of a bound method': () => {
      const scale = new Scale();
      const count = function (this: Scale, t: Tensor): Tensor {
        return t.mul(this.by++);
      }.bind(scale);
      return [count, /this of .*by/];
    },
    'what a getter closes over': () => {
      let calls = 1;
      const object = {
        get by(): number {
          return ++calls;
        },
      };
      return [(t) => t.mul(object.by), /calls/];
    },
    'a variable in a getter of a class': () => {
      let calls = 1;
      class Counting extends nn.Module<[t: Tensor], Tensor> {
        get by(): number {
          return ++calls;
        }
        override forward(t: Tensor): Tensor {
          return t.mul(this.by);
        }
      }
      return [new Counting() as unknown as Fn, /calls/];
    },
  };

  for (const [what, make] of Object.entries(changing)) {
    it(`${what} does so once at every call`, () => {
      const [fn] = make();
      const compiled = compile(fn);
      const results = Array.from({ length: 5 }, () => compiled(x()).item());
      assert.deepEqual(results, [2, 3, 4, 5, 6]);
    });

    it(`${what} is refused with fullgraph`, () => {
      const [fn, path] = make();
      assert.throws(
        () => compile(fn, { fullgraph: true })(x()),
        (error: Error) => error instanceof CompileError && path.test(error.message),
      );
    });
  }

  it('a WeakMap by a tensor that it made stores that of an uncompiled call, once', () => {
    const key = {};
    const tables = new WeakMap<object, Tensor>();
    const fn: Fn = (t) => {
      let table = tables.get(key);
      if (table === undefined) {
        table = ones([1]).mul(2);
        tables.set(key, table);
      }
      return t.mul(table);
    };
    const explained = compiler.explain(fn);
    const { breaks } = explained(x());
    assert.match(String(breaks[0]?.reason), /changes tables, in which it stores a tensor/);
    const table = tables.get(key);
    assert.equal(table?.item(), 2);
    for (let i = 0; i < 2; i++) {
      const { graphs } = explained(x());
      assert.ok(graphs[0]?.guards.includes('tables of an object is a Tensor'));
      assert.equal(graphs.length, 2, 'its segment, and its graph');
    }
    assert.equal(tables.get(key), table);
  });

  it('nothing, and seems to, says at its first call why that runs uncompiled', () => {
    const settings = { by: 2 };
    const titled = (t: Tensor, title: string): Tensor => t.mul(title.length);
    const explained = compiler.explain((t: Tensor) => titled(t, 'settings = 2').mul(settings.by));
    const reasons = explained(x()).breaks.map(({ reason }) => reason);
    assert.ok(
      reasons.some((reason) => /seems to assign to settings, so its first call/.test(reason)),
    );
    const { breaks, graphs } = explained(x());
    assert.equal(graphs[0]?.opCount, 2);
    assert.deepEqual(breaks, []);
  });
});
