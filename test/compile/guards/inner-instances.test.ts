/** Guards on instances of classes inside of instances. */
import assert from 'node:assert/strict';
import { compile, compiler, nn, type Tensor, tensor } from '../../../lib/index.js';
import { CompileCounter } from '../../../lib/testing/index.js';
import { Outer } from './settings.js';

class Inner {
  k = 1;
  date = new Date(1);
  bytes = new Uint8Array([1]);
  scale = tensor([1]);
  owner: object | null = null;
}

class Holder {
  inner = new Inner();
  list = [new Inner()];
  map = new Map([['a', { of: new Inner() }]]);
  #hidden = new Inner();
  get hidden(): Inner {
    return this.#hidden;
  }
}

class Held extends nn.Module {
  holder: Holder;
  constructor(holder: Holder) {
    super();
    this.holder = holder;
  }
  override forward(x: Tensor): Tensor {
    return x.mul(weight(this.holder));
  }
}

const innersOf = ({ inner, list, map, hidden }: Holder): Inner[] => [
  inner,
  list[0] as Inner,
  map.get('a')?.of as Inner,
  hidden,
];

/** A number that depends on each part of each instance. */
const weight = (holder: Holder): number =>
  innersOf(holder).reduce(
    (sum, { k, date, bytes }, i) => sum + (i + 1) * (k + 10 * date.getTime() + 100 * bytes[0]!),
    0,
  );

const changes: readonly (readonly [name: string, change: (inner: Inner) => void])[] = [
  ['a number', (inner) => (inner.k = 5)],
  ['a date', (inner) => inner.date.setTime(3)],
  ['bytes', (inner) => inner.bytes.fill(7)],
];

type Counter = ReturnType<typeof CompileCounter>;
type Program = (holder: Holder, counter: Counter) => (x: Tensor) => Tensor;

const programs: Readonly<Record<string, Program>> = {
  'that a function closes over': (holder, backend) =>
    compile((x: Tensor) => x.mul(weight(holder)), { backend, fullgraph: true }),
  'of an argument': (holder, backend) => {
    const fn = (x: Tensor, given: { holder: Holder }): Tensor => x.mul(weight(given.holder));
    const compiled = compile(fn, { backend, fullgraph: true });
    return (x) => compiled(x, { holder });
  },
  'of a module': (holder, backend) =>
    compile(new Held(holder), { backend, fullgraph: true }) as unknown as (x: Tensor) => Tensor,
};

for (const [where, program] of Object.entries(programs))
  describe(`guards see instances inside of an instance ${where}`, () => {
    beforeEach(() => {
      compiler.config.recompileLimit = 64;
    });
    afterEach(() => {
      compiler.config.recompileLimit = 8;
    });

    for (const [name, change] of changes)
      it(`when ${name} in them changes`, () => {
        const holder = new Holder();
        const counter = CompileCounter();
        const compiled = program(holder, counter);
        const expected = (): unknown => tensor([1]).mul(weight(holder)).tolist();
        assert.deepEqual(compiled(tensor([1])).tolist(), expected());
        for (const inner of innersOf(holder)) {
          change(inner);
          assert.deepEqual(compiled(tensor([1])).tolist(), expected());
        }
        assert.deepEqual(compiled(tensor([1])).tolist(), expected());
        assert.equal(counter.frameCount, 5);
      });
  });

describe('guards on instances inside of instances', () => {
  it('see a tensor that takes the place of another', () => {
    const holder = new Holder();
    const compiled = compile((x: Tensor) => x.mul(holder.inner.scale), { fullgraph: true });
    assert.deepEqual(compiled(tensor([2])).tolist(), [2]);
    holder.inner.scale = tensor([5]);
    assert.deepEqual(compiled(tensor([2])).tolist(), [10]);
  });

  it('follow instances that contain themselves', () => {
    const holder = new Holder();
    holder.inner.owner = holder;
    holder.inner.owner = { again: holder.inner, holder };
    const compiled = compile((x: Tensor, given: Holder) => x.mul(given.inner.k), {
      fullgraph: true,
    });
    assert.deepEqual(compiled(tensor([2]), holder).tolist(), [2]);
    holder.inner.k = 3;
    assert.deepEqual(compiled(tensor([2]), holder).tolist(), [6]);
  });

  it('see instances of classes of another file in arguments and modules', () => {
    const outer = new Outer();
    const argument = compile((x: Tensor, { inner }: Outer) => x.mul(inner.k), { fullgraph: true });
    class Scaled extends nn.Module {
      settings = outer;
      override forward(x: Tensor): Tensor {
        return x.mul(this.settings.inner.k);
      }
    }
    const module = compile(new Scaled(), { fullgraph: true });
    for (const k of [1, 4]) {
      outer.inner.k = k;
      assert.deepEqual(argument(tensor([2]), outer).tolist(), [2 * k]);
      assert.deepEqual(module(tensor([2])).tolist(), [2 * k]);
    }
  });

  it('let a function with more than a thousand of them run uncompiled', () => {
    class Item {
      k = 1;
    }
    class Many {
      all = Array.from({ length: 1001 }, () => new Item());
    }
    const many = new Many();
    const fn = (x: Tensor, { all }: Many): Tensor => x.mul(all.at(-1)!.k);
    const compiled = compile(fn);
    for (const k of [1, 4]) {
      many.all.at(-1)!.k = k;
      assert.deepEqual(compiled(tensor([2]), many).tolist(), [2 * k]);
    }
    assert.throws(
      () => compile(fn, { fullgraph: true })(tensor([2]), many),
      /argument 1\.all\[1000\] is one of too many instances to compare/,
    );
  });

  it('let a function change them at every call', () => {
    const holder = new Holder();
    const compiled = compile((x: Tensor) => x.mul(++holder.inner.k));
    assert.deepEqual(
      [1, 2, 3].map(() => compiled(tensor([1])).tolist()),
      [[2], [3], [4]],
    );
  });
});

describe('what the language keeps in an instance', () => {
  const places: readonly (readonly [string, () => (x: Tensor) => Tensor])[] = [
    [
      'the message of an error',
      () => {
        const error = new Error('a');
        return (x) => x.mul((error.message += 'b').length);
      },
    ],
    [
      'the place of a regular expression',
      () => {
        const text = /a/g;
        return (x) => x.mul(text.exec('aaaaa') === null ? 0 : text.lastIndex);
      },
    ],
    [
      'parameters of a search',
      () => {
        const search = new URLSearchParams('k=0&k=3');
        return (x) => {
          search.append('k', '1');
          return x.mul(search.getAll('k').length);
        };
      },
    ],
    [
      'an address',
      () => {
        const url = new URL('http://a/');
        return (x) => x.mul((url.pathname += 'b').length);
      },
    ],
  ];
  for (const [name, program] of places)
    it(`changes once for each call: ${name}`, () => {
      const [compiled, plain] = [compile(program()), program()];
      for (let i = 0; i < 3; i++)
        assert.deepEqual(compiled(tensor([1])).tolist(), plain(tensor([1])).tolist());
    });

  it('is compared: the message of an error', () => {
    const error = new Error('a');
    const compiled = compile((x: Tensor) => x.mul(error.message.length), { fullgraph: true });
    assert.deepEqual(compiled(tensor([1])).tolist(), [1]);
    error.message = 'abc';
    assert.deepEqual(compiled(tensor([1])).tolist(), [3]);
  });
});
