/** Worker threads of a loader: the same batches as without, errors by sample and worker, no thread left. */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { inspect } from 'node:util';
import { DataLoader, type Dataset, importDataset } from '../../lib/data/index.js';
import { runProgram } from '../run-program.js';

type Sample = { square: number; vector: Float32Array; thread: number };

const here = (name: string): URL => new URL(`./datasets/${name}.ts`, import.meta.url);
const squares = (options: object = {}): Promise<Dataset<Sample>> =>
  importDataset<Sample>(here('squares'), options);

async function all<T>(batches: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const batch of batches) found.push(batch);
  return found;
}

describe('worker threads of DataLoader', function () {
  this.timeout(60_000);

  it('give the batches that this thread gives', async () => {
    const dataset = await squares();
    const options = { batchSize: 3, shuffle: true, seed: 2 };
    const lists = async (numWorkers: number): Promise<unknown[]> => {
      const batches = await all(new DataLoader(dataset, { ...options, numWorkers }));
      return batches.map(({ square, vector }) => [square.tolist(), vector.tolist()]);
    };
    assert.deepEqual(await lists(2), await lists(0));
  });

  it('take steps in turns, and leave the memory of datasets where it is', async () => {
    const dataset = await squares({ length: 8 });
    const collateFn = (samples: Sample[]): Sample[] => samples;
    const loader = new DataLoader(dataset, { batchSize: 2, numWorkers: 2, collateFn });
    for (let epoch = 0; epoch < 2; epoch++) {
      const batches = await all(loader);
      const ids = batches.map((samples) => samples[0]?.thread);
      assert.deepEqual(ids, [ids[0], ids[1], ids[0], ids[1]]);
      assert.equal(new Set(ids).size, 2);
      assert.ok(!ids.includes(0));
      assert.deepEqual(batches[1]?.[1]?.vector, Float32Array.of(3, 4, 5, 6));
      assert.equal(batches[1]?.[1]?.vector.buffer.byteLength, 16);
    }
  });

  it('make samples of the items of a stream', async () => {
    const dataset = await importDataset<{ line: string; thread: number }, string>(here('lines'));
    const collateFn = (samples: { line: string; thread: number }[]) => samples;
    const loader = new DataLoader(dataset, { batchSize: 4, numWorkers: 1, collateFn });
    const samples = (await all(loader)).flat();
    assert.deepEqual(
      samples.map(({ line }) => line),
      Array.from({ length: 10 }, (_, i) => `line ${i}`),
    );
    assert.ok(samples.every(({ thread }) => thread > 0));
  });

  it('name the sample that cannot be loaded, and the worker', async () => {
    const loader = new DataLoader(await squares({ failing: 7 }), { batchSize: 2, numWorkers: 2 });
    const got: number[] = [];
    await assert.rejects(
      async () => {
        for await (const { square } of loader) got.push(...(square.tolist() as number[]));
      },
      (error: Error & { code?: string; details?: object }) => {
        assert.equal(
          error.message,
          'DataLoader: sample 7 at position 7 of epoch 0 cannot be loaded in worker 1: no square of 7',
        );
        assert.equal(error.code, 'ERR_DATA');
        assert.deepEqual(error.details, { sample: 7, epoch: 0, position: 7, worker: 1 });
        assert.ok(error.cause instanceof RangeError);
        return true;
      },
    );
    assert.deepEqual(got, [0, 1, 4, 9, 16, 25]);
  });

  it('report the end of a thread, what cannot be sent, and a module that fails', async () => {
    const fails = async (dataset: Dataset<unknown>, message: RegExp, collateFn?: () => number) => {
      const loader = new DataLoader(dataset, {
        numWorkers: 2,
        ...(collateFn === undefined ? {} : { collateFn }),
      });
      await assert.rejects(all(loader), (error) => {
        assert.match(inspect(error), message);
        return true;
      });
    };
    await fails(await squares({ ending: 3 }), /worker 1 ended with code 3/);
    await fails(await squares({ function: 1 }), /could not be cloned/, () => 0);
    await fails(
      await importDataset(here('broken')),
      /broken\.ts cannot be imported: no such table/,
    );
  });

  it('end with the iteration: at its end, a break, a return and an error', async () => {
    const beats = new Int32Array(new SharedArrayBuffer(4));
    const count = (): number => Atomics.load(beats, 0);
    const ended = async (run: (batches: DataLoader<Sample>) => Promise<void>): Promise<void> => {
      const dataset = await squares({ length: 40, failing: 30, beats });
      await run(new DataLoader(dataset, { numWorkers: 2, batchSize: 2 }));
      const last = count();
      await sleep(20);
      assert.equal(count(), last);
      Atomics.store(beats, 0, 0);
    };
    const untilABeat = async (): Promise<void> => {
      while (count() === 0) await sleep(1);
    };
    await ended(async (batches) => {
      for await (const _ of batches) {
        await untilABeat();
        break;
      }
    });
    await ended(async (batches) => {
      const iterator = batches[Symbol.asyncIterator]();
      await iterator.next();
      await untilABeat();
      await iterator.return();
    });
    await ended(async (batches) => {
      const failing = async (): Promise<void> => {
        for await (const _ of batches) await untilABeat();
      };
      await assert.rejects(failing(), /sample 30 /);
    });
    await ended(async () => {
      const all = await squares({ length: 4, beats });
      for await (const _ of new DataLoader(all, { numWorkers: 2 })) await untilABeat();
    });
  });

  it('let a program end that leaves an iteration as it is', async () => {
    assert.deepEqual(await runProgram('data/programs/abandoned'), [7]);
  });

  it('import a module by path, and refuse one that exports no dataset', async () => {
    const dataset = await importDataset<string>('test/data/datasets/lines.ts');
    assert.ok(dataset);
    await assert.rejects(
      importDataset(new URL('../../lib/data/fetch.ts', import.meta.url)),
      /importDataset: expected dataset to be an array/,
    );
    await assert.rejects(importDataset('no-such-file.mjs'), {
      code: 'ERR_DATA',
      message: /no-such-file\.mjs cannot be imported/,
    });
    await assert.rejects(importDataset(3 as never), /expected module to be a path/);
  });
});
