/** The `tree` namespace: tensors in nested arrays, plain objects and maps. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { ArgumentError, compile, ones, type Tensor, tensor, tree, zeros } from '../../lib/index.js';
import { CompileCounter } from '../../lib/testing/index.js';

class Instance {
  readonly t = ones([2]);
}

/** Trees of tensors and other values. */
const trees = fc.letrec<{ tree: unknown }>((tie) => ({
  tree: fc.oneof(
    { maxDepth: 4, withCrossShrink: true },
    fc.constantFrom<unknown>(1, 'text', null, undefined, true, new Instance(), new Set([1])),
    fc.integer().map((n) => tensor(n)),
    fc.array(tie('tree'), { maxLength: 3 }),
    fc.dictionary(fc.string({ maxLength: 3 }), tie('tree'), { noNullPrototype: true }),
    fc.array(fc.tuple(fc.string(), tie('tree')), { maxLength: 3 }).map((list) => new Map(list)),
  ),
})).tree;

describe('tree.map', () => {
  it('replaces tensors in arrays, plain objects and maps, and copies these', () => {
    const [x, y, z] = [ones([1]), zeros([2]), ones([3])] as const;
    const given = { x, list: [y, { deep: new Map([['z', z]]) }], n: 3, none: null };
    const result = tree.map((t) => t.add(1), given);
    assert.deepEqual(
      [
        result.x,
        result.list[0],
        (result.list[1] as { deep: Map<string, Tensor> }).deep.get('z'),
      ].map((t) => (t as Tensor).tolist()),
      [[2], [1, 1], [2, 2, 2]],
    );
    assert.deepEqual([result.n, result.none], [3, null]);
    assert.notEqual(result.list, given.list);
    assert.equal(given.x, x);
  });

  it('keeps instances of classes, sets, typed arrays and the keys of maps unchanged', () => {
    const key = ones([1]);
    const given = [new Instance(), new Set([ones([1])]), new Float32Array(2), new Map([[key, 1]])];
    const result = tree.map(() => assert.fail('no tensor is a leaf'), given);
    assert.deepEqual(
      [result[0] === given[0], result[1] === given[1], result[2] === given[2]],
      [true, true, true],
    );
    assert.deepEqual([...(result[3] as Map<Tensor, number>).keys()], [key]);
  });

  it('keeps the structure of any tree, and visits tensors in the order of tree.tensors', () => {
    fc.assert(
      fc.property(trees, (value) => {
        const visited: Tensor[] = [];
        const same = tree.map((t) => {
          visited.push(t);
          return t;
        }, value);
        assert.deepEqual(same, value);
        assert.deepEqual(visited, tree.tensors(value));
      }),
    );
  });

  it('keeps an object key named __proto__ as a key', () => {
    const given = JSON.parse('{"__proto__": [1]}') as object;
    assert.deepEqual(Object.keys(tree.map((t) => t, given)), ['__proto__']);
  });

  it('refuses a value that is not a function, and values that contain themselves', () => {
    const cyclic: unknown[] = [];
    cyclic.push({ cyclic });
    assert.throws(() => tree.map(3 as never, []), ArgumentError);
    assert.throws(() => tree.map((t) => t, cyclic), /tree\.map: .*contains itself/);
    assert.throws(() => tree.tensors(new Map([['a', cyclic]])), /tree\.tensors: .*contains itself/);
  });
});

describe('tree.tensors', () => {
  it('lists a tensor as often as it occurs', () => {
    const t = ones([1]);
    assert.deepEqual(tree.tensors([t, { t }, new Map([[1, t]]), 'text']), [t, t, t]);
    assert.deepEqual(tree.tensors(t), [t]);
    assert.deepEqual(tree.tensors(undefined), []);
  });
});

describe('compile with maps of tensors', () => {
  it('takes the tensors of a map as inputs of one graph, and returns maps', () => {
    const backend = CompileCounter();
    const fn = compile(
      (given: Map<string, Tensor>) => {
        return new Map([['sum', (given.get('a') as Tensor).add(given.get('b') as Tensor)]]);
      },
      { fullgraph: true, backend },
    );
    for (const n of [1, 2, 3]) {
      const result = fn(
        new Map([
          ['a', tensor([n])],
          ['b', tensor([10])],
        ]),
      );
      assert.deepEqual(result.get('sum')?.tolist(), [n + 10]);
    }
    assert.equal(backend.frameCount, 1);
  });
});
