/** Regions are found to be a whole tensor exactly if each element is in one of them. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { inSlices } from '../../../lib/checkpoint/time-slices.js';
import {
  type Region,
  tilingProblem,
} from '../../../lib/parallel/distributed-checkpoint/regions.js';

/** How many regions have each element. */
function counts(shape: readonly number[], regions: readonly Region[]): number[] {
  const numel = shape.reduce((a, b) => a * b, 1);
  const found = new Array<number>(numel).fill(0);
  const visit = ({ offsets, sizes }: Region, dim: number, at: number): void => {
    if (dim === shape.length) {
      found[at] = (found[at] as number) + 1;
      return;
    }
    const start = offsets[dim] as number;
    for (let i = start; i < start + (sizes[dim] as number); i++)
      visit({ offsets, sizes }, dim + 1, at * (shape[dim] as number) + i);
  };
  for (const region of regions) visit(region, 0, 0);
  return found;
}

/** Divides a region at random places, in any order of dims. */
function divided(region: Region, cuts: readonly { dim: number; at: number }[]): Region[] {
  let all = [region];
  cuts.forEach(({ dim, at }, turn) => {
    all = all.flatMap((each, i) => {
      const size = each.sizes[dim % each.sizes.length] ?? 0;
      if (size < 2 || (i + turn) % 2 === 0) return [each];
      const d = dim % each.sizes.length;
      const first = 1 + (at % (size - 1));
      const part = (from: number, length: number): Region => ({
        offsets: each.offsets.map((o, j) => (j === d ? o + from : o)),
        sizes: each.sizes.map((s, j) => (j === d ? length : s)),
      });
      return [part(0, first), part(first, size - first)];
    });
  });
  return all;
}

const problemOf = (shape: readonly number[], regions: readonly Region[]): Promise<string | null> =>
  inSlices(tilingProblem(shape, regions));

const shapes = fc.array(fc.integer({ min: 0, max: 5 }), { maxLength: 4 });
const cuts = fc.array(fc.record({ dim: fc.nat(3), at: fc.nat(4) }), { maxLength: 8 });

describe('regions of a tensor', () => {
  it('are the whole exactly if each element is in one of them', () =>
    fc.assert(
      fc.asyncProperty(
        shapes,
        cuts,
        fc.nat(),
        fc.constantFrom('keep', 'drop', 'twice', 'move', 'grow', 'swap'),
        async (shape, where, pick, change) => {
          const regions = divided({ offsets: shape.map(() => 0), sizes: shape }, where);
          const i = pick % regions.length;
          const one = regions[i] as Region;
          if (change === 'drop') regions.splice(i, 1);
          if (change === 'twice') regions.push(one);
          if (change === 'swap') regions[(pick + 1) % regions.length] = one;
          const dim = pick % Math.max(1, shape.length);
          const end = (one.offsets[dim] ?? 0) + (one.sizes[dim] ?? 0);
          if (end < (shape[dim] ?? 0) && (change === 'move' || change === 'grow')) {
            const list = change === 'move' ? one.offsets : one.sizes;
            const moved = list.map((n, j) => (j === dim ? n + 1 : n));
            regions[i] = change === 'move' ? { ...one, offsets: moved } : { ...one, sizes: moved };
          }
          const isWhole = counts(shape, regions).every((count) => count === 1);
          assert.equal((await problemOf(shape, regions)) === null, isWhole);
        },
      ),
      { numRuns: 2000 },
    ));

  it('may be the whole in a pattern that no line through all of it divides', async () => {
    const pinwheel: Region[] = [
      { offsets: [0, 0], sizes: [1, 2] },
      { offsets: [0, 2], sizes: [2, 1] },
      { offsets: [2, 1], sizes: [1, 2] },
      { offsets: [1, 0], sizes: [2, 1] },
      { offsets: [1, 1], sizes: [1, 1] },
    ];
    assert.equal(await problemOf([3, 3], pinwheel), null);
    assert.match(String(await problemOf([3, 3], pinwheel.slice(1))), /each element once/);
  });

  it('are refused if they divide more dims than a mesh does', async () => {
    const shape = new Array<number>(13).fill(2);
    const regions = divided(
      { offsets: shape.map(() => 0), sizes: shape },
      shape.flatMap((_, dim) => [
        { dim, at: 0 },
        { dim, at: 0 },
      ]),
    );
    assert.match(String(await problemOf(shape, regions)), /divide 13 dims, at most 12/);
  });
});
