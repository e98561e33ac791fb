/** The initial random state of ranks, in both modes of `launch`. */
import assert from 'node:assert/strict';
import { manualSeed, rand, randn } from '../../../lib/index.js';
import { runProgram } from '../../run-program.js';

/** Of each run, of each rank: a number of a plain tensor, and one of a tensor on both ranks. */
type Drawn = [plain: number, together: number][][];
const drawn = (...args: string[]): Promise<Drawn> =>
  runProgram('distributed/programs/rank-rng', ...args);
const distinct = (numbers: readonly (number | undefined)[]): number => new Set(numbers).size;

describe('the random state of ranks', function () {
  this.timeout(60_000);

  for (const mode of ['local', 'process']) {
    it(`continues from the state of a seeded program, in mode '${mode}'`, async () => {
      manualSeed(7);
      rand([2]);
      const next = randn([1]).item() as number;
      for (const run of await drawn(mode, 'by the program'))
        for (const rank of run) assert.deepEqual(rank, [next, next]);
    });

    it(`is random without a seed, and equal only for distributed tensors, in mode '${mode}'`, async () => {
      const runs = await drawn(mode);
      for (const [first, second] of runs) assert.equal(first?.[1], second?.[1]);
      assert.equal(distinct(runs.flat(2)), 6);
    });
  }

  it('comes from the seed of launch if the program has none, so that runs can be repeated', async () => {
    const runs = await drawn('local', 'by launch');
    assert.deepEqual(runs[0], runs[1]);
    assert.deepEqual(await drawn('local', 'by launch'), runs);
    const [[first, second]] = runs as [[[number, number], [number, number]]];
    assert.equal(first[1], second[1]);
    assert.equal(distinct([...first, ...second]), 3);
  });
});
