/** The places of intermediate results in one block of memory. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { type Lifetime, planMemory } from '../../../lib/compile/schedule/memory-plan.js';

const lifetime = fc
  .record({
    bytes: fc.integer({ min: 0, max: 5000 }),
    first: fc.integer({ min: 0, max: 30 }),
    length: fc.integer({ min: 0, max: 10 }),
  })
  .map(({ bytes, first, length }): Lifetime => ({ bytes, first, last: first + length }));

const aligned = (bytes: number): number => Math.ceil(bytes / 256) * 256;

describe('the memory plan', () => {
  it('gives results that live at the same time memory of their own', () => {
    fc.assert(
      fc.property(fc.array(lifetime, { maxLength: 40 }), (lifetimes) => {
        const { offsets, bytes } = planMemory(lifetimes);
        for (const [i, a] of lifetimes.entries()) {
          const start = offsets[i] as number;
          assert.equal(start % 256, 0);
          assert.ok(start + a.bytes <= bytes);
          for (const [k, b] of lifetimes.entries()) {
            if (i === k || a.last < b.first || b.last < a.first) continue;
            const other = offsets[k] as number;
            assert.ok(
              start + a.bytes <= other || other + b.bytes <= start || a.bytes * b.bytes === 0,
            );
          }
        }
      }),
    );
  });

  it('needs two places for a chain, however long', () => {
    const chain = Array.from({ length: 50 }, (_, i) => ({ bytes: 1000, first: i, last: i + 1 }));
    assert.equal(planMemory(chain).bytes, 2 * 1024);
  });

  it('needs no more than all results together, and no less than the most that live at once', () => {
    fc.assert(
      fc.property(fc.array(lifetime, { maxLength: 40 }), (lifetimes) => {
        const { bytes } = planMemory(lifetimes);
        const sum = (list: readonly Lifetime[]): number =>
          list.reduce((total, each) => total + aligned(each.bytes), 0);
        assert.ok(bytes <= sum(lifetimes));
        for (let at = 0; at <= 40; at++)
          assert.ok(bytes >= sum(lifetimes.filter(({ first, last }) => first <= at && at <= last)));
      }),
    );
  });
});
