/**
 * State that a function keeps in JavaScript objects: after each call it is what an uncompiled call
 * leaves, whether the function is captured, breaks, or fails.
 */
import assert from 'node:assert/strict';
import { compile, graphBreak, nn, ones, Tensor, tensor } from '../../../lib/index.js';
import { BACKENDS } from '../../seeds/compiled.js';

type Step = (x: Tensor) => Tensor;

/** A function and what it keeps. */
interface Stateful {
  readonly fn: Step;
  readonly state: () => unknown;
}

class Counter {
  n = 0;
  latest: Tensor | null = null;
  readonly seen: number[] = [];

  tick(x: Tensor): void {
    this.n++;
    this.seen.push(this.n);
    this.latest = x.mul(2);
  }
}

class Store extends Map<string, Tensor> {
  hits = 0;
  latest: Tensor | null = null;

  put(value: Tensor): void {
    this.hits++;
    this.latest = value;
    this.set(`k${this.hits}`, value);
  }
}

class Total extends Array<number> {
  total = 0;
}

class Trainer {
  readonly counters = new Map([['loss', new Counter()]]);
  readonly inner = { counter: new Counter() };
}

/** A module that keeps state in all kinds of objects, by one of the ways. */
class Keeping extends nn.Module<[x: Tensor], Tensor> {
  log: unknown[] = [];
  tensors: Tensor[] = [];
  stats: { calls: number; latest?: Tensor } = { calls: 0 };
  cache = new Map<number, Tensor>();
  keys = new Set<number>();
  bytes = new Uint8Array(2);
  lazy: Record<string, Tensor> = {};
  counter = new Counter();
  trainer = new Trainer();
  store: Store | null = null;
  totals: Total | null = null;
  sparse: Tensor[] = [];
  readonly way: string;

  constructor(way: string) {
    super();
    this.way = way;
    if (way === 'keeps a tensor in a subclass of Map') this.store = new Store();
    if (way === 'counts in a subclass of Array') this.totals = new Total();
  }

  forward(x: Tensor): Tensor {
    const y = x.mul(2);
    return this.keep(x, y).add(this.log.length + this.stats.calls + this.counter.n);
  }

  private keep(x: Tensor, y: Tensor): Tensor {
    switch (this.way) {
      case 'pushes a number to an array':
        this.log.push(x.numel());
        return y;
      case 'pushes a tensor to an array':
        this.tensors.push(y);
        return this.tensors.reduce((a, b) => a.add(b));
      case 'counts in an object':
        this.stats.calls++;
        return y;
      case 'keeps a tensor in an object':
        this.stats.latest = (this.stats.latest ?? y).add(x);
        return y;
      case 'fills a map':
        if (!this.cache.has(x.numel())) this.cache.set(x.numel(), x.exp());
        return y.mul(this.cache.get(x.numel()) as Tensor);
      case 'makes a new map':
        this.cache = new Map([[1, y]]);
        return y;
      case 'makes a tensor once':
        return y.mul((this.lazy.k ??= ones([2]).mul(3)));
      case 'adds to a set':
        this.keys.add(this.keys.size);
        return y.mul(this.keys.size);
      case 'writes into bytes':
        this.bytes[0] = (this.bytes[0] as number) + 1;
        return y.add(this.bytes[0] as number);
      case 'calls a method of an object that counts':
        this.counter.tick(y);
        return y.add(this.counter.latest as Tensor);
      case 'keeps a tensor in a subclass of Map': {
        const store = this.store as Store;
        const { latest, size } = store;
        store.put(y);
        return latest === null ? y : y.add(latest).add(size);
      }
      case 'counts in a subclass of Array': {
        const totals = this.totals as Total;
        totals.total++;
        totals.push(1);
        return y.mul(totals.total);
      }
      case 'leaves holes in an array': {
        let count = 0;
        this.sparse[3] = x;
        this.sparse.forEach(() => count++);
        return y.mul(count);
      }
      case 'calls a method of an object inside of others':
        this.trainer.counters.get('loss')?.tick(y);
        this.trainer.inner.counter.tick(x);
        return y.add(this.trainer.inner.counter.n);
      default:
        throw new Error(this.way);
    }
  }

  state(): unknown {
    const { log, tensors, stats, cache, keys, bytes, lazy, counter, trainer } = this;
    const { store, totals, sparse } = this;
    const more = [
      [...(store ?? [])],
      store?.hits,
      totals?.total,
      [...(totals ?? [])],
      Object.entries(sparse),
    ];
    const inner = [more, ...trainer.counters.values(), trainer.inner.counter];
    return valuesIn([inner, log, tensors, stats, [...cache], [...keys], [...bytes], lazy, counter]);
  }
}

const WAYS = [
  'pushes a number to an array',
  'pushes a tensor to an array',
  'counts in an object',
  'keeps a tensor in an object',
  'fills a map',
  'makes a new map',
  'makes a tensor once',
  'adds to a set',
  'writes into bytes',
  'calls a method of an object that counts',
  'keeps a tensor in a subclass of Map',
  'counts in a subclass of Array',
  'leaves holes in an array',
  'calls a method of an object inside of others',
];

/** Plain values, with those of tensors in their places. */
function valuesIn(value: unknown): unknown {
  if (value instanceof Tensor) return value.tolist();
  if (Array.isArray(value)) return value.map(valuesIn);
  if (typeof value !== 'object' || value === null) return value;
  return Object.entries(value).map(([name, item]) => [name, valuesIn(item)]);
}

const throughModule = (way: string): Stateful => {
  const module = new Keeping(way);
  return { fn: (x) => module(x), state: () => module.state() };
};

const broken = (way: string): Stateful => {
  const module = new Keeping(way);
  const fn: Step = (x) => {
    const y = module(x);
    return y.mul(y.sum().item<number>());
  };
  return { fn, state: () => module.state() };
};

function assertSame(make: () => Stateful, backend: (typeof BACKENDS)[number]): void {
  const [eager, other] = [make(), make()];
  const compiled = compile(other.fn, { backend });
  for (let call = 0; call < 4; call++) {
    const x = tensor([1 + call, 2]);
    assert.deepEqual(compiled(x).tolist(), eager.fn(x).tolist(), `call ${call}`);
    assert.deepEqual(other.state(), eager.state(), `state after call ${call}`);
  }
}

for (const backend of BACKENDS)
  describe(`a compiled function with ${backend}`, () => {
    for (const way of WAYS) {
      it(`that ${way} of a module keeps what an uncompiled one keeps`, () => {
        assertSame(() => throughModule(way), backend);
      });

      it(`that ${way} of a module and then breaks keeps what an uncompiled one keeps`, () => {
        assertSame(() => broken(way), backend);
      });
    }

    it('that changes an instance that is an argument keeps what an uncompiled one keeps', () => {
      const step = (x: Tensor, kept: Counter): Tensor => {
        kept.tick(x);
        if (kept.n > 1) graphBreak();
        return x.add(kept.n).add(kept.latest as Tensor);
      };
      const compiled = compile(step, { backend });
      const [eager, other] = [new Counter(), new Counter()];
      for (let call = 0; call < 4; call++) {
        const x = tensor([call, 2]);
        assert.deepEqual(compiled(x, other).tolist(), step(x, eager).tolist());
        assert.deepEqual(valuesIn(other), valuesIn(eager));
      }
    });

    it('that changes an object inside of an argument keeps what an uncompiled one keeps', () => {
      const step = (x: Tensor, { trainer }: { trainer: Trainer }): Tensor => {
        trainer.counters.get('loss')?.tick(x);
        return x.add(trainer.counters.get('loss')?.latest as Tensor);
      };
      const compiled = compile(step, { backend });
      const [eager, other] = [{ trainer: new Trainer() }, { trainer: new Trainer() }];
      for (let call = 0; call < 4; call++) {
        const x = tensor([call, 2]);
        assert.deepEqual(compiled(x, other).tolist(), step(x, eager).tolist());
        const [seen, expected] = [other, eager].map((of) => [...of.trainer.counters.values()]);
        assert.deepEqual(valuesIn(seen), valuesIn(expected));
      }
    });
  });

describe('a capture that ends with an error', () => {
  for (const way of WAYS.filter((each) => !each.includes('subclass')))
    it(`puts back what the function keeps where it ${way}`, () => {
      const module = new Keeping(way);
      const before = module.state();
      const failing = compile(
        (x: Tensor) => {
          module(x);
          throw new RangeError('after the module');
        },
        { fullgraph: true },
      );
      assert.throws(() => failing(ones([2])), RangeError);
      assert.deepEqual(module.state(), before);
      const reading = compile((x: Tensor) => module(x).sum().item(), { fullgraph: true });
      assert.throws(() => reading(ones([2])), /a value of a tensor/);
      assert.deepEqual(module.state(), before);
      module(ones([2]));
    });
});
