/** Guards on which of the tensors that a function knows an argument is. */
import assert from 'node:assert/strict';
import { compile, compiler, nn, type Tensor, tensor } from '../../../lib/index.js';
import { CompileCounter } from '../../../lib/testing/index.js';

const [a, b] = [tensor([1]), tensor([1])];
const map = new Map([
  [a, 2],
  [b, 5],
]);
const set = new Set([a]);
const list = [a, b];
const weakMap = new WeakMap([
  [a, 3],
  [b, 4],
]);
const weakSet = new WeakSet<object>([b]);
const layer = new nn.Linear(1, 1);

/** Which captures serve the calls below: those for a, for b, and for any other. */
const programs: Readonly<Record<string, (x: Tensor) => number>> = {
  'by ===': (x) => (x === a ? 2 : x === b ? 3 : 100),
  'by a Map': (x) => map.get(x) ?? 100,
  'by a Set': (x) => (set.has(x) ? 2 : 100),
  'by the place in a list': (x) => list.indexOf(x) + 10,
  'by a WeakMap': (x) => weakMap.get(x) ?? 10,
  'by a WeakSet': (x) => (weakSet.has(x) ? 2 : 10),
};

describe('a compiled function that asks which tensor an argument is', () => {
  for (const [name, number] of Object.entries(programs))
    it(`knows it ${name}`, () => {
      for (const order of [
        [a, b, tensor([1])],
        [tensor([1]), b, a],
      ]) {
        const counter = CompileCounter();
        const fn = (x: Tensor): Tensor => x.mul(number(x));
        const compiled = compile(fn, { backend: counter, fullgraph: true });
        for (const x of [...order, tensor([2]), ...order])
          assert.deepEqual(compiled(x).tolist(), fn(x).tolist());
        assert.ok(counter.frameCount <= 3, `${counter.frameCount} captures`);
      }
    });

  it('knows parameters of a module', () => {
    const fn = (x: Tensor): Tensor => x.mul(x === layer.weight ? 2 : 3);
    const compiled = compile(fn, { fullgraph: true });
    for (const x of [tensor([[1]]).requiresGrad_(), layer.weight, layer.bias as Tensor])
      assert.deepEqual(compiled(x).tolist(), fn(x).tolist());
  });

  it('is captured once for all tensors that it does not know', () => {
    const counter = CompileCounter();
    const compiled = compile((x: Tensor) => x.mul(weakMap.get(x) ?? 10).add(a), {
      backend: counter,
      fullgraph: true,
    });
    for (let i = 0; i < 4; i++) assert.deepEqual(compiled(tensor([i])).tolist(), [10 * i + 1]);
    assert.equal(counter.frameCount, 1);
  });

  it('tells objects of arguments apart that a WeakMap has, and no others', () => {
    const known = { k: 1 };
    const sizes = new WeakMap([[known, 2]]);
    const counter = CompileCounter();
    const compiled = compile((x: Tensor, o: { k: number }) => x.mul(sizes.get(o) ?? 100), {
      backend: counter,
      fullgraph: true,
    });
    for (const o of [{ k: 1 }, known, { k: 1 }, { k: 1 }, known])
      assert.deepEqual(compiled(tensor([1]), o).tolist(), [o === known ? 2 : 100]);
    assert.equal(counter.frameCount, 2);
  });

  it('sees that an argument is in a WeakMap of a module later', () => {
    class Cached extends nn.Module {
      cache = new WeakMap<Tensor, number>();
      override forward(x: Tensor): Tensor {
        return x.mul(this.cache.get(x) ?? 100);
      }
    }
    const module = new Cached();
    const compiled = compile(module, { fullgraph: true }) as unknown as (x: Tensor) => Tensor;
    const x = tensor([1]);
    assert.deepEqual(compiled(x).tolist(), [100]);
    module.cache.set(x, 2);
    assert.deepEqual(compiled(x).tolist(), [2]);
  });

  it('says so in explanations', () => {
    const compiled = compile((x: Tensor) => x.mul(weakMap.get(x) ?? 10));
    const explained = compiler.explain(compiled);
    const { graphs } = explained(tensor([1]));
    assert.ok(graphs[0]?.guards.includes('argument 0 is in no WeakMap or WeakSet of the function'));
    assert.deepEqual(explained(a).recaptures[0]?.because, [
      'argument 0 was in none and is in a WeakMap or a WeakSet',
    ]);
  });
});
