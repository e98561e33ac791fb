/** Keys of params: equal for equal ones, different for others, none for what cannot have one. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { describe, it } from 'mocha';
import { cpu, device } from '../../lib/core/device.js';
import { float16, float32 } from '../../lib/core/dtype.js';
import { paramsKey } from '../../lib/dtensor/propagation/cache-key.js';
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
const params = fc.dictionary(
  fc.oneof(fc.string(), fc.constantFrom('dim', 'keepdim', '1', '2')),
  value,
  { noNullPrototype: true },
);

/** Another description of the same, slow and plain. */
function describeValue(x: unknown): string {
  if (Array.isArray(x)) return JSON.stringify(x.map(describeValue));
  if (typeof x === 'object' && x !== null && Object.getPrototypeOf(x) === Object.prototype)
    return JSON.stringify(Object.entries(x).map(([k, v]) => [k, describeValue(v)]));
  return typeof x === 'object' && x !== null
    ? `object ${x.constructor.name} ${String(x)}`
    : `${typeof x} ${String(x)}`;
}

describe('the key of params', () => {
  it('leaves out which numbers are drawn, but no offset of another kind', () => {
    const draw = { shape: [2], seedLow: 1, seedHigh: 2, offset: 3 };
    assert.equal(paramsKey(draw), paramsKey({ ...draw, seedLow: 5, offset: 9 }));
    assert.notEqual(paramsKey(draw), paramsKey({ ...draw, shape: [3] }));
    assert.notEqual(paramsKey({ offset: 1 }), paramsKey({ offset: 2 }));
  });

  it('is equal exactly for equal params', () => {
    const keys = new Map<string, string>();
    fc.assert(
      fc.property(params, (given) => {
        const key = paramsKey(given);
        assert.ok(key !== null);
        const description = describeValue(given);
        assert.equal(keys.get(key) ?? description, description);
        keys.set(key, description);
        assert.equal(paramsKey(given), key);
      }),
      { numRuns: 2000 },
    );
  });

  it('tells apart what looks alike', () => {
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
      { 'a=1,': 1 },
      {},
    ];
    assert.equal(new Set(alike.map((given) => paramsKey(given))).size, alike.length);
  });

  it('is none for tensors, functions and objects of other classes', () => {
    for (const thing of [metadata([2]), () => 1, new Map(), Symbol('s'), [[() => 1]]])
      assert.equal(paramsKey({ thing }), null);
    const endless: Record<string, unknown> = {};
    endless['self'] = endless;
    assert.equal(paramsKey(endless), null);
  });

  it('follows changes of params that are not frozen through and through', () => {
    const dims = [1];
    const shallow = Object.freeze({ dims });
    const before = paramsKey(shallow);
    dims.push(2);
    assert.notEqual(paramsKey(shallow), before);
  });
});
