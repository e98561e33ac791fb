/** `DataLoader`: each sample comes once, on any number of ranks, also if the run is resumed on others. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  BatchSampler,
  DataLoader,
  type DataLoaderState,
  DistributedSampler,
  mapDataset,
  SequentialSampler,
} from '../../lib/data/index.js';
import { float64, setDefaultDtype } from '../../lib/index.js';
import { all, loaderOf, type Options, some, sorted, streamOf, upTo } from './loaders.js';

/**
 * What `n` ranks get in so many steps from a state, and the state after them. The steps may end
 * earlier with the epoch.
 */
async function shared(
  samples: number[] | (() => AsyncIterable<number>),
  options: Options,
  numReplicas: number,
  steps: number,
  state: DataLoaderState | null,
): Promise<{ got: number[]; state: DataLoaderState }> {
  const got: number[] = [];
  const states: DataLoaderState[] = [];
  const counts: number[] = [];
  for (const rank of upTo(numReplicas)) {
    const loader = loaderOf(samples, { ...options, numReplicas, rank });
    if (state !== null) loader.loadStateDict(state);
    const batches = await some(loader, steps);
    assert.ok(batches.every((batch) => batch.length > 0));
    got.push(...batches.flat());
    counts.push(batches.length);
    states.push(loader.stateDict());
  }
  for (const each of states) assert.deepEqual(each, states[0]);
  for (const count of counts) assert.equal(count, counts[0]);
  return { got, state: states[0] as DataLoaderState };
}

/** Runs one after the other, each on some ranks for some steps, until an epoch is over. */
async function resumedOver(
  samples: number[] | (() => AsyncIterable<number>),
  options: Options,
  runs: readonly { ranks: number; steps: number }[],
  epochs: number,
): Promise<number[]> {
  let state: DataLoaderState | null = null;
  const got: number[] = [];
  for (let run = 0; (state?.epoch ?? 0) < epochs; run++) {
    const { ranks, steps } = runs[run % runs.length] as { ranks: number; steps: number };
    const part = await shared(samples, options, ranks, steps, state);
    got.push(...part.got);
    state = part.state;
  }
  return got;
}

describe('DataLoader', () => {
  const runs = fc.array(
    fc.record({ ranks: fc.integer({ min: 1, max: 5 }), steps: fc.integer({ min: 1, max: 4 }) }),
    { minLength: 1, maxLength: 4 },
  );

  for (const [kind, made] of [
    ['a dataset', upTo],
    ['a stream', streamOf],
  ] as const)
    it(`gives each sample of ${kind} once over any sequence of world sizes and stops`, async () => {
      await fc.assert(
        fc.asyncProperty(
          fc.integer({ min: 5, max: 60 }),
          fc.integer({ min: 1, max: 4 }),
          fc.boolean(),
          runs,
          async (length, batchSize, shuffle, sizes) => {
            const options = { batchSize, shuffle, seed: 7, bufferSize: 10 };
            const got = await resumedOver(made(length), options, sizes, 2);
            // Where ranks lack a sample at the end, the next epoch gives its first ones.
            const twice = sorted([...upTo(length), ...upTo(length)]);
            const counts = new Map<number, number>();
            for (const sample of got) counts.set(sample, (counts.get(sample) ?? 0) + 1);
            assert.ok(got.length >= twice.length && got.length < twice.length + 5);
            assert.equal(counts.size, length);
            for (const count of counts.values()) assert.ok(count === 2 || count === 3);
          },
        ),
        { numRuns: 40 },
      );
    });

  it('gives each sample once over 4, 2 and 3 ranks, in the order of one rank', async () => {
    const options = { batchSize: 3, shuffle: true, seed: 11 };
    const runs = [
      { ranks: 4, steps: 2 },
      { ranks: 2, steps: 3 },
      { ranks: 3, steps: 100 },
    ];
    const got = await resumedOver(upTo(60), options, runs, 1);
    assert.deepEqual(sorted(got), upTo(60));
    const alone = (await all(loaderOf(upTo(60), options))).flat();
    assert.deepEqual(sorted(got.slice(0, 24)), sorted(alone.slice(0, 24)));
    assert.deepEqual(sorted(got.slice(24, 42)), sorted(alone.slice(24, 42)));
  });

  it('gives the same global batches to any number of ranks', async () => {
    const batches = async (numReplicas: number, batchSize: number): Promise<number[][]> => {
      const byRank = await Promise.all(
        upTo(numReplicas).map((rank) =>
          all(loaderOf(upTo(48), { batchSize, shuffle: true, numReplicas, rank })),
        ),
      );
      return (byRank[0] as number[][]).map((_, i) =>
        sorted(byRank.flatMap((ofRank) => ofRank[i] as number[])),
      );
    };
    assert.deepEqual(await batches(4, 2), await batches(1, 8));
    assert.deepEqual(await batches(2, 4), await batches(1, 8));
  });

  it('fills the last step up from the next epoch, which begins behind', async () => {
    const { got, state } = await shared(upTo(9), { batchSize: 1 }, 4, 100, null);
    assert.deepEqual(sorted(got), [0, 0, 1, 1, 2, 2, 3, 4, 5, 6, 7, 8]);
    assert.deepEqual(state, {
      seed: 0,
      epoch: 1,
      position: 3,
      length: 9,
      order: 'as they come',
    });
    const next = await shared(upTo(9), { batchSize: 1 }, 3, 100, state);
    assert.deepEqual(sorted(next.got), [3, 4, 5, 6, 7, 8]);
  });

  it('says how many samples ranks need that cannot be filled up', async () => {
    const loader = loaderOf([1], { numReplicas: 4, rank: 0 });
    await assert.rejects(all(loader), {
      code: 'ERR_DATA',
      message: /4 ranks need a sample each, and epoch 1 has only 1/,
    });
  });

  it('drops what fills no batch on each rank', async () => {
    const options = { batchSize: 2, dropLast: true };
    const { got, state } = await shared(upTo(11), options, 2, 100, null);
    assert.deepEqual(sorted(got), upTo(8));
    assert.deepEqual([state.epoch, state.position], [1, 0]);
    assert.equal(loaderOf(upTo(11), options).length, 5);
    assert.equal(loaderOf(upTo(11), { batchSize: 2 }).length, 6);
    assert.deepEqual(await all(loaderOf(streamOf(3), options)), [[0, 1]]);
  });

  it('begins the next epoch where a resumed one has no batch left', async () => {
    const loader = loaderOf(upTo(10), { batchSize: 2, dropLast: true });
    const state = { ...loader.stateDict(), epoch: 2, position: 9 };
    loader.loadStateDict(state);
    assert.deepEqual((await some(loader, 1)).flat(), [0, 1]);
    assert.deepEqual(loader.stateDict(), { ...state, epoch: 3, position: 2 });
  });

  it('has another order in each epoch, and goes on with the next one after a break', async () => {
    const loader = loaderOf(upTo(20), { batchSize: 5, shuffle: true });
    const [first, second] = [await all(loader), await all(loader)];
    assert.notDeepEqual(first, second);
    assert.deepEqual(sorted(first.flat()), sorted(second.flat()));
    await some(loader, 1);
    assert.deepEqual(loader.stateDict(), {
      seed: 0,
      epoch: 2,
      position: 5,
      length: 20,
      order: 'shuffled',
    });
    await some(loader, 1);
    assert.deepEqual(loader.stateDict(), {
      seed: 0,
      epoch: 3,
      position: 5,
      length: 20,
      order: 'shuffled',
    });
    const unshuffled = loaderOf(upTo(4), { batchSize: 2 });
    assert.deepEqual(await some(unshuffled, 1), await some(unshuffled, 1));
  });

  it('repeats epochs without an end', async () => {
    const loader = loaderOf(upTo(4), { batchSize: 3 });
    assert.deepEqual(await some(loader.repeat(), 4), [[0, 1, 2], [3], [0, 1, 2], [3]]);
    await assert.rejects(some(loaderOf([], {}).repeat(), 1), /epoch 0 has no batch/);
  });

  it('shuffles a stream by its seed and epoch, each item near its place', async () => {
    const options = { batchSize: 50, shuffle: true, bufferSize: 5, seed: 3 };
    const loader = loaderOf(streamOf(50), options);
    const [first, second] = [(await all(loader)).flat(), (await all(loader)).flat()];
    assert.deepEqual((await all(loaderOf(streamOf(50), options))).flat(), first);
    assert.notDeepEqual(first, second);
    assert.notDeepEqual(first, upTo(50));
    assert.deepEqual(sorted(first), upTo(50));
    first.forEach((sample, i) => assert.ok(sample <= i + 5));
  });

  it('makes samples of its own items of a stream only', async () => {
    const made: number[] = [];
    const stream = mapDataset(streamOf(12), (n) => {
      made.push(n);
      return n * 10;
    });
    const loader = new DataLoader(stream, { batchSize: 2, numReplicas: 3, rank: 1 });
    const batches = await all(loader);
    assert.deepEqual(made, [1, 4, 7, 10]);
    assert.deepEqual(
      batches.map((t) => t.tolist()),
      [
        [10, 40],
        [70, 100],
      ],
    );
  });

  it('takes batches of a batchSampler in turns', async () => {
    const batchSampler = new BatchSampler(new SequentialSampler(upTo(7)), 2);
    const of = (rank: number) => loaderOf(upTo(7), { batchSampler, numReplicas: 2, rank });
    assert.deepEqual(await all(of(0)), [
      [0, 1],
      [4, 5],
    ]);
    assert.deepEqual(await all(of(1)), [[2, 3], [6]]);
    const loader = of(1);
    loader.loadStateDict({ ...loader.stateDict(), epoch: 0, position: 2 });
    assert.deepEqual(await all(loader), [[6]]);
  });

  it('takes the ranks of a DistributedSampler, and any iterable as a sampler', async () => {
    const sampler = new DistributedSampler(upTo(8), { numReplicas: 2, rank: 1, shuffle: false });
    assert.deepEqual(await all(loaderOf(upTo(8), { batchSize: 2, sampler })), [
      [1, 3],
      [5, 7],
    ]);
    const loader = loaderOf(upTo(8), { batchSize: 2, sampler: [7, 3, 5] });
    assert.deepEqual(await all(loader), [[7, 3], [5]]);
    loader.loadStateDict({ ...loader.stateDict(), epoch: 4, position: 1 });
    assert.deepEqual(await all(loader), [[3, 5]]);
  });

  it('loads batches ahead, and hands failures over in their turn', async () => {
    const asked: number[] = [];
    const dataset = {
      length: 6,
      get: async (index: number) => {
        asked.push(index);
        if (index === 2) throw new Error('no such row');
        return index;
      },
    };
    const batches = new DataLoader(dataset, { prefetchFactor: 3 })[Symbol.asyncIterator]();
    assert.equal((await batches.next()).value?.item(), 0);
    assert.deepEqual(asked, [0, 1, 2, 3]);
    assert.equal((await batches.next()).value?.item(), 1);
    await assert.rejects(batches.next(), (error: Error & { details?: object }) => {
      assert.equal(
        error.message,
        'DataLoader: sample 2 at position 2 of epoch 0 cannot be loaded: no such row',
      );
      assert.equal((error.cause as Error).message, 'no such row');
      assert.deepEqual(error.details, { sample: 2, epoch: 0, position: 2 });
      return true;
    });
    assert.equal((await batches.next()).done, true);
  });

  it('names the item of a stream that cannot be loaded', async () => {
    const stream = mapDataset(streamOf(9), (n) => {
      if (n === 5) throw new Error('bad line');
      return n;
    });
    await assert.rejects(
      all(new DataLoader(stream, { batchSize: 3, numReplicas: 2, rank: 1 })),
      /position 5 of epoch 0 cannot be loaded: bad line/,
    );
  });

  it('gives all whole batches of a stream before it fails, with the place to go on from', async () => {
    const stream = async function* () {
      yield* [0, 1, 2, 3, 4];
      throw new Error('connection lost');
    };
    const loader = loaderOf(stream, { batchSize: 2 });
    const got: number[][] = [];
    await assert.rejects(async () => {
      for await (const batch of loader) got.push(batch);
    }, /connection lost/);
    assert.deepEqual(got, [
      [0, 1],
      [2, 3],
    ]);
    assert.deepEqual(loader.stateDict(), {
      seed: 0,
      epoch: 0,
      position: 4,
      length: null,
      order: 'as they come',
    });
  });

  it('closes a stream that is left early', async () => {
    let isClosed = false;
    const stream = async function* () {
      try {
        for (let i = 0; ; i++) yield i;
      } finally {
        isClosed = true;
      }
    };
    await some(loaderOf(stream, { batchSize: 2 }), 1);
    assert.ok(isClosed);
  });

  it('makes numbers of the default dtype', async () => {
    setDefaultDtype('float64');
    try {
      const [batch] = await all(new DataLoader([1.5, 2.5], { batchSize: 2 }));
      assert.equal(batch?.dtype, float64);
    } finally {
      setDefaultDtype('float32');
    }
  });

  it('refuses datasets and options that do not fit, with what to give', () => {
    const refused = (options: object, message: RegExp, dataset: unknown = [1, 2]): void =>
      assert.throws(() => new DataLoader(dataset as never, options as never), message);
    refused({}, /expected dataset to be an array, a dataset with length and get/, 3);
    refused({}, /because each epoch begins it anew, got an object/, streamOf(3)());
    refused({ batchSize: 0 }, /expected batchSize to be a whole number from 1, got 0/);
    refused({ numReplicas: 2 }, /expected rank to be given with numReplicas/);
    refused({ numReplicas: 2, rank: 2 }, /expected rank to be a whole number from 0 to 1/);
    refused({ sampler: [0], shuffle: true }, /sampler and shuffle exclude each other/);
    refused({ sampler: 3 }, /expected sampler to be an iterable with a length/);
    refused({ batchSampler: [[0]], batchSize: 2 }, /batchSampler and batchSize exclude/);
    refused({ sampler: [0] }, /sampler and a stream, .* exclude each other/, streamOf(3));
    refused({ numWorkers: 2 }, /expected a dataset of importDataset for numWorkers: 2/);
    refused({ batchsize: 2 }, /there is no option "batchsize"/);
  });
});
