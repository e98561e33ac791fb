/**
 * Where the random numbers of ranks begin: in both modes where the program stands, if it has chosen
 * that.
 */
import assert from 'node:assert/strict';
import { manualSeed, rand, randn } from '../../../lib/index.js';
import { runProgram } from '../../run-program.js';

/** Of each run, of each rank: a number of a plain tensor, and one of a tensor on both ranks. */
type Drawn = [plain: number, together: number][][];
const drawn = (...args: string[]): Promise<Drawn> =>
  runProgram('distributed/programs/rank-rng', ...args);
const distinct = (numbers: readonly (number | undefined)[]): number => new Set(numbers).size;

describe('the random numbers of ranks', function () {
  this.timeout(60_000);

  for (const mode of ['local', 'process']) {
    it(`go on where the program stands that has seeded them, in mode '${mode}'`, async () => {
      manualSeed(7);
      rand([2]);
      const next = randn([1]).item() as number;
      for (const run of await drawn(mode, 'by the program'))
        for (const rank of run) assert.deepEqual(rank, [next, next]);
    });

    it(`begin by chance where it has not, alike only in distributed tensors, in mode '${mode}'`, async () => {
      const runs = await drawn(mode);
      for (const [first, second] of runs) assert.equal(first?.[1], second?.[1]);
      assert.equal(distinct(runs.flat(2)), 6);
    });
  }

  it('are drawn from the seed of launch where the program has none, so that the run can be had again', async () => {
    const runs = await drawn('local', 'by launch');
    assert.deepEqual(runs[0], runs[1]);
    assert.deepEqual(await drawn('local', 'by launch'), runs);
    const [[first, second]] = runs as [[[number, number], [number, number]]];
    assert.equal(first[1], second[1]);
    assert.equal(distinct([...first, ...second]), 3);
  });
});
