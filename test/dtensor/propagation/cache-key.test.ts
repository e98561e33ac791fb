/**
 * The cache key of params: equal for equal params, different for others, null for values without a
 * key.
 */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { describe, it } from 'mocha';
import { cpu, device } from '../../../lib/core/device.js';
import { float16, float32 } from '../../../lib/core/dtype.js';
import '../../../lib/ops/index.js';
import { type AnyOp, opByName } from '../../../lib/core/op.js';
import { paramsKey } from '../../../lib/dtensor/propagation/cache-key.js';
import { metadata } from './toy-ops.js';

const leaf = fc.oneof(
  fc.integer(),
  fc.double({ noNaN: true }),
  fc.boolean(),
  fc.string(),
  fc.constant(null),
  fc.bigInt(),
  fc.constantFrom(float16, float32, cpu, device('cuda:1')),
);
const value = fc.oneof(
  leaf,
  fc.array(leaf),
  fc.dictionary(fc.string(), leaf, { noNullPrototype: true }),
);
const names = ['dim', 'keepdim', 'other'];
const params = fc.record({ dim: value, keepdim: value, other: value }, { noNullPrototype: true });
const keyOf = (given: object): string | null => paramsKey(names, given);

/** Another description of the same, slow and plain. */
function describeValue(x: unknown): string {
  if (Array.isArray(x)) return JSON.stringify(x.map(describeValue));
  if (typeof x === 'object' && x !== null && Object.getPrototypeOf(x) === Object.prototype)
    return JSON.stringify(Object.entries(x).map(([k, v]) => [k, describeValue(v)]));
  return typeof x === 'object' && x !== null
    ? `object ${x.constructor.name} ${String(x)}`
    : `${typeof x} ${String(x)}`;
}

describe('the cache key of params', () => {
  it('omits the random state of a draw, but no other offset', () => {
    const { keyed } = (opByName('randomUniform') as AnyOp).params;
    const draw = { shape: [2], seedLow: 1, seedHigh: 2, offset: 3, first: 0, second: 1 };
    assert.equal(paramsKey(keyed, draw), paramsKey(keyed, { ...draw, seedLow: 5, offset: 9 }));
    assert.notEqual(paramsKey(keyed, draw), paramsKey(keyed, { ...draw, shape: [3] }));
    const offset = opByName('diagonal')?.params.keyed ?? [];
    assert.notEqual(paramsKey(offset, { offset: 1 }), paramsKey(offset, { offset: 2 }));
  });

  it('is equal exactly for equal params', () => {
    const keys = new Map<string, string>();
    fc.assert(
      fc.property(params, (given) => {
        const key = keyOf(given);
        assert.ok(key !== null);
        const description = describeValue(given);
        assert.equal(keys.get(key) ?? description, description);
        keys.set(key, description);
        assert.equal(keyOf(given), key);
      }),
      { numRuns: 2000 },
    );
  });

  it('differs for values that print alike', () => {
    const alike = [
      { a: 1 },
      { a: '1' },
      { a: 1n },
      { a: [1] },
      { a: [[1]] },
      { a: true },
      { a: 't' },
      { a: null },
      { a: undefined },
      { a: 0n },
      { a: 'float32' },
      { a: float32 },
      { a: 'cpu' },
      { a: cpu },
    ];
    assert.equal(new Set(alike.map((given) => paramsKey(['a'], given))).size, alike.length);
  });

  it('is null for tensors, functions and class instances', () => {
    for (const thing of [metadata([2]), () => 1, new Map(), Symbol('s'), [[() => 1]]])
      assert.equal(paramsKey(['thing'], { thing }), null);
    const endless: Record<string, unknown> = {};
    endless['self'] = endless;
    assert.equal(paramsKey(['self'], endless), null);
  });

  it('follows changes of params that are not deeply frozen', () => {
    const dims = [1];
    const shallow = Object.freeze({ dims });
    const before = paramsKey(['dims'], shallow);
    dims.push(2);
    assert.notEqual(paramsKey(['dims'], shallow), before);
  });
});
