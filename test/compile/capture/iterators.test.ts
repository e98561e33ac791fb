/** Functions that go on with an iterator or a generator at each call. */
import assert from 'node:assert/strict';
import { CompileError, compile, nn, ones, type Tensor } from '../../../lib/index.js';
import { BACKENDS } from '../../seeds/compiled.js';

type Step = (x: Tensor) => Tensor;

function* numbers(): Generator<number, never> {
  for (let n = 1; ; n++) yield n;
}

class Batches extends nn.Module<[x: Tensor], Tensor> {
  readonly source: Iterator<number>;

  constructor(source: Iterator<number>) {
    super();
    this.source = source;
  }

  forward(x: Tensor): Tensor {
    return x.mul(this.source.next().value as number);
  }
}

const array = (): Iterator<number> => [1, 2, 3, 4, 5].values();
const passing = (source: Iterator<number>): Step => {
  const step = (x: Tensor, from: Iterator<number>): Tensor => x.mul(from.next().value as number);
  return compiling((fn) => {
    const run = fn(step as (...args: unknown[]) => unknown);
    return (x) => run(x, source) as Tensor;
  });
};

/** A step that is compiled by what the test gives. */
let compiling: (
  make: (wrap: <F extends (...args: never[]) => unknown>(fn: F) => F) => Step,
) => Step;

const programs: readonly (readonly [string, () => Step])[] = [
  [
    'a generator that it closes over',
    () => {
      const source = numbers();
      return compiling((wrap) => wrap((x: Tensor) => x.mul(source.next().value)));
    },
  ],
  [
    'the rest of a generator',
    () => {
      const source = numbers();
      return compiling((wrap) =>
        wrap((x: Tensor) => {
          for (const n of source) if (n % 2 === 0) return x.mul(n);
          return x;
        }),
      );
    },
  ],
  [
    'a generator of a module',
    () => {
      const module = new Batches(numbers());
      return compiling((wrap) => wrap((x: Tensor) => module(x)));
    },
  ],
  [
    'the iterator of an array of a module',
    () => {
      const module = new Batches(array());
      return compiling((wrap) => wrap((x: Tensor) => module(x)));
    },
  ],
  ['a generator that is an argument', () => passing(numbers())],
  ['the iterator of an array that is an argument', () => passing(array())],
  [
    'the iterator of a map that is an argument',
    () => passing(new Map([1, 2, 3, 4].map((n) => [n, n])).keys()),
  ],
];

for (const backend of BACKENDS)
  describe(`a function compiled with ${backend}`, () => {
    for (const [what, make] of programs)
      it(`that takes a step of ${what} takes it at each call`, () => {
        compiling = (from) => from((fn) => fn);
        const eager = make();
        compiling = (from) => from((fn) => compile(fn as never, { backend }) as never);
        const compiled = make();
        for (let call = 0; call < 4; call++)
          assert.deepEqual(compiled(ones([2])).tolist(), eager(ones([2])).tolist(), `call ${call}`);
      });
  });

describe('a capture', () => {
  it('refuses a step of a generator before it is taken', () => {
    const source = numbers();
    const step = compile((x: Tensor) => x.mul(source.next().value), { fullgraph: true });
    assert.throws(
      () => step(ones([2])),
      (error) =>
        error instanceof CompileError &&
        /^compile: a generator took a step while the function was captured, at .*iterators\.test/.test(
          error.message,
        ),
    );
    assert.equal(source.next().value, 1);
  });

  it('names the iterator that an argument or a module holds', () => {
    const step = compile(
      (x: Tensor, from: { it: Iterator<number> }) => x.mul(from.it.next().value),
      {
        fullgraph: true,
      },
    );
    assert.throws(() => step(ones([2]), { it: array() }), /argument 1\.it is an iterator/);
    const module = compile(new Batches(array()), { fullgraph: true });
    assert.throws(() => module(ones([2])), /Batches\.source is an iterator/);
  });

  it('contains the walks of the library', () => {
    const model = new nn.Sequential(new nn.Linear(2, 2), new nn.BatchNorm1d(2));
    const list = new nn.ModuleList([new nn.Linear(2, 2)]);
    const parameters = new nn.ParameterList([new nn.Parameter(ones([2]))]);
    const fn = (x: Tensor): Tensor => {
      for (const p of model.parameters()) x = x.add(p.sum());
      for (const [, b] of model.namedBuffers()) x = x.add(b.sum());
      for (const child of model) x = x.add(child.training ? 1 : 2);
      for (const child of list) x = child(x);
      for (const p of parameters) x = x.mul(p);
      for (const [name] of model.namedModules()) x = x.add(name.length);
      for (const row of x) x = x.add(row);
      const { values } = x.max(0);
      return x.add(values).add(Object.keys(model.stateDict()).length);
    };
    const compiled = compile(fn, { fullgraph: true });
    for (let call = 0; call < 2; call++)
      assert.deepEqual(compiled(ones([2, 2])).tolist(), fn(ones([2, 2])).tolist());
  });
});
