/** Samplers: orders of indices that depend on the seed, the epoch and the length. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  BatchSampler,
  DistributedSampler,
  RandomSampler,
  SequentialSampler,
} from '../../lib/data/index.js';
import { Permutation } from '../../lib/data/permutation.js';

const sorted = (indices: Iterable<number>): number[] => [...indices].sort((a, b) => a - b);
const upTo = (length: number): number[] => Array.from({ length }, (_, i) => i);

describe('RandomSampler', () => {
  it('gives each index once, whatever length, seed and epoch', () => {
    fc.assert(
      fc.property(fc.nat(300), fc.maxSafeNat(), fc.nat(), (length, seed, epoch) => {
        const sampler = new RandomSampler({ length }, { seed });
        sampler.setEpoch(epoch);
        assert.deepEqual(sorted(sampler), upTo(length));
      }),
    );
  });

  it('goes on from a position as the whole order does', () => {
    const sampler = new RandomSampler({ length: 1000 }, { seed: 3 });
    assert.deepEqual([...sampler.from(990)], [...sampler].slice(990));
  });

  it('has the same order again, and others for other seeds and epochs', () => {
    const order = (seed: number, epoch: number): string => {
      const sampler = new RandomSampler({ length: 100 }, { seed });
      sampler.setEpoch(epoch);
      return [...sampler].join();
    };
    assert.equal(order(1, 0), order(1, 0));
    const others = [order(1, 0), order(2, 0), order(1, 1), order(2 ** 32 + 1, 0)];
    assert.equal(new Set(others).size, others.length);
  });

  it('finds a place among more items than memory has room for', () => {
    const order = new Permutation(2 ** 45, 1, 0);
    const found = upTo(100).map((i) => order.at(2 ** 44 + i));
    assert.equal(new Set(found).size, 100);
    assert.ok(found.every((index) => index >= 0 && index < 2 ** 45));
  });

  it('puts each item at each place equally often', () => {
    const [length, seeds] = [7, 7000];
    const counts = upTo(length * length).fill(0);
    for (let seed = 0; seed < seeds; seed++)
      [...new RandomSampler({ length }, { seed })].forEach((index, place) => {
        counts[place * length + index] = (counts[place * length + index] as number) + 1;
      });
    const expected = seeds / length;
    const chiSquared = counts.reduce((sum, n) => sum + (n - expected) ** 2 / expected, 0);
    // 36 degrees of freedom: one table in a million of a fair order is above.
    assert.ok(chiSquared < 93, `${chiSquared}`);
  });

  it('refuses what has no length, and bad seeds', () => {
    assert.throws(() => new RandomSampler({} as never), /RandomSampler: expected dataset to be/);
    assert.throws(() => new RandomSampler([1], { seed: -1 }), /expected seed to be a whole number/);
    assert.throws(() => new RandomSampler([1], { sed: 1 } as never), /no option "sed"/);
  });
});

describe('DistributedSampler', () => {
  it('shares an order among ranks, each of which gets equally many', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 60 }), fc.integer({ min: 1, max: 9 }), (length, n) => {
        const all = upTo(n).map((rank) => [
          ...new DistributedSampler({ length }, { numReplicas: n, rank, seed: 5 }),
        ]);
        for (const each of all) assert.equal(each.length, Math.ceil(length / n));
        assert.deepEqual(sorted(new Set(all.flat())), upTo(length));
      }),
    );
  });

  it('gives what torch.utils.data.DistributedSampler does without shuffling', () => {
    const of = (rank: number) =>
      new DistributedSampler({ length: 10 }, { numReplicas: 4, rank, shuffle: false });
    assert.deepEqual(
      upTo(4).map((rank) => [...of(rank)]),
      [
        [0, 4, 8],
        [1, 5, 9],
        [2, 6, 0],
        [3, 7, 1],
      ],
    );
  });

  it('refuses a rank that is none of the replicas', () => {
    assert.throws(
      () => new DistributedSampler([1], { numReplicas: 2, rank: 2 }),
      /expected rank to be a whole number from 0 to 1, got 2/,
    );
  });
});

describe('BatchSampler', () => {
  it('makes batches of another order', () => {
    const order = new SequentialSampler({ length: 5 });
    const whole = new BatchSampler(order, 2);
    assert.deepEqual([...whole], [[0, 1], [2, 3], [4]]);
    assert.equal(whole.length, 3);
    const dropped = new BatchSampler(order, 2, true);
    assert.deepEqual(
      [...dropped],
      [
        [0, 1],
        [2, 3],
      ],
    );
    assert.equal(dropped.length, 2);
  });
});
