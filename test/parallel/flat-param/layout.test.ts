/** The layouts of flat parameters in worlds of several ranks, against a formula. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { FlatParamHandle, FullyShardedDataParallel } from '../../../lib/distributed.js';
import { type DType, float16, float32, nn, type Tensor } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';

/** Numbers of elements of three weights, as in seed 003.9 and 003.10. */
const layouts = [
  { sizes: [3, 7, 5, 5], dtype: float32, numel: 85 },
  { sizes: [2, 5, 5, 3], dtype: float16, numel: 63 },
];

function linears(sizes: readonly number[]): nn.Sequential {
  const layers = sizes
    .slice(1)
    .map((size, i) => new nn.Linear(sizes[i] as number, size, { bias: false }));
  return new nn.Sequential(...layers);
}

/** Parameter and element, or null for padding, of each element of the whole. */
function elements(
  numels: readonly number[],
  alignment: number | null,
  ranks: number,
): ([parameter: number, element: number] | null)[] {
  const all: ([number, number] | null)[] = [];
  const padTo = (multiple: number): void => {
    while (all.length % multiple !== 0) all.push(null);
  };
  numels.forEach((numel, parameter) => {
    padTo(alignment ?? 1);
    for (let i = 0; i < numel; i++) all.push([parameter, i]);
  });
  if (alignment !== null) padTo(ranks);
  return all;
}

/** What a handle says of a range, by the elements in it. */
function assertRange(
  handle: FlatParamHandle,
  whole: readonly ([number, number] | null)[],
  start: number,
  end: number,
): void {
  const shard = whole.slice(start, end + 1);
  for (const [parameter, info] of handle._getShardMetadata(start, end).entries()) {
    const at = shard.flatMap((each, i) => (each?.[0] === parameter ? [i] : []));
    assert.equal(info.inShard, at.length > 0);
    if (at.length === 0) continue;
    const [first, last] = [at[0] as number, at.at(-1) as number];
    assert.deepEqual(info, {
      inShard: true,
      offsetInShard: first,
      numelInShard: at.length,
      intraParamStartIdx: shard[first]?.[1],
      intraParamEndIdx: shard[last]?.[1],
    });
  }
}

describe('the layout of a flat parameter', () => {
  for (const ranks of [2, 3, 4, 8])
    for (const { sizes, dtype } of layouts)
      for (const useOrigParams of [false, true])
        it(
          `divides ${dtype.name} among ${ranks} ranks, with useOrigParams: ${useOrigParams}`,
          withRanks(ranks, async (rank) => {
            const module = linears(sizes).to(dtype as DType);
            const numels = [...module.parameters()].map((p) => p.numel());
            const values = await Promise.all(
              [...module.parameters()].map((p) => p.detach().reshape([-1]).float().read()),
            );
            const whole = elements(numels, useOrigParams ? 16 / dtype.itemsize : null, ranks);
            const fsdp = new FullyShardedDataParallel(module, { useOrigParams });
            const shard = (fsdp._flatParam as Tensor).detach();
            const each = Math.ceil(whole.length / ranks);
            assert.equal(shard.numel(), each);
            const actual = [...((await shard.float().read()) as Iterable<number>)];
            const expected = Array.from({ length: each }, (_, i) => {
              const at = whole[rank * each + i];
              if (at === undefined) return 0;
              return at === null ? 42 : (values[at[0]] as Float32Array)[at[1]];
            });
            assert.deepEqual(actual, expected);
          }),
        );

  it(
    'has the totals of both alignments in one world',
    withRanks(1, () => {
      for (const { sizes, dtype, numel } of layouts) {
        const module = linears(sizes);
        const options = { useOrigParams: true, mpParamDtype: dtype };
        const handle = new FlatParamHandle([...module.parameters()], module, options);
        assert.equal(handle.flatParam.numel(), numel);
      }
    }),
  );

  it(
    'says of any range what its elements say',
    withRanks(4, () => {
      fc.assert(
        fc.property(
          fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 2, maxLength: 5 }),
          fc.boolean(),
          fc.nat({ max: 150 }),
          fc.nat({ max: 150 }),
          (sizes, useOrigParams, start, length) => {
            const module = linears(sizes);
            const numels = [...module.parameters()].map((p) => p.numel());
            const handle = new FlatParamHandle([...module.parameters()], module, {
              useOrigParams,
            });
            const whole = elements(numels, useOrigParams ? 4 : null, 4);
            assert.equal(handle.flatParam.numel(), whole.length);
            assertRange(handle, whole, start, start + length);
          },
        ),
        { numRuns: 50 },
      );
    }),
  );
});
