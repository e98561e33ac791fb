/** A loader puts batches onto a GPU: the copy of the next one runs beside the work of this one. */
import assert from 'node:assert/strict';
import path from 'node:path';
import { DataLoader, importDataset } from '../../lib/data/index.js';
import { cuda, randn, type Tensor } from '../../lib/index.js';
import { skipWithoutCuda } from '../skip.js';

async function all<T>(batches: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const batch of batches) found.push(batch);
  return found;
}

describe('DataLoader with a GPU as its device', function () {
  this.timeout(120_000);
  before(function () {
    skipWithoutCuda(this);
  });

  it('gives the values that the CPU gives, of workers and of a collateFn too', async () => {
    const extension = path.extname(import.meta.url); // compiled for machines without TypeScript
    const url = new URL(`./datasets/squares${extension}`, import.meta.url);
    const dataset = await importDataset<{ square: number; vector: Float32Array }>(url);
    const lists = async (options: object): Promise<unknown[]> => {
      const batches = await all(
        new DataLoader(dataset, { batchSize: 3, shuffle: true, ...options }),
      );
      return batches.map(({ square, vector }) => [square.tolist(), vector.tolist()]);
    };
    const expected = await lists({});
    assert.deepEqual(await lists({ device: 'cuda' }), expected);
    assert.deepEqual(await lists({ device: 'cuda', numWorkers: 2 }), expected);
    const collateFn = (rows: Tensor[]): Tensor => rows[0] as Tensor;
    const rows = [randn([4]), randn([4])];
    const batches = await all(new DataLoader(rows, { device: 'cuda', collateFn }));
    batches.forEach((batch, i) => {
      assert.ok(batch.isCuda);
      assert.deepEqual(batch.tolist(), rows[i]?.tolist());
    });
  });

  it('begins the next copy before the program gets a batch, and uses each in order', async () => {
    const made: number[] = [];
    const dataset = {
      length: 5,
      get: (index: number) => {
        made.push(index);
        return new Float32Array(1 << 20).fill(index);
      },
    };
    let expected = 0;
    for await (const batch of new DataLoader(dataset, { device: 'cuda:0' })) {
      assert.deepEqual(made.length, Math.min(expected + 2, 5));
      // Work on the current stream waits for the copy, which is of another stream.
      assert.equal(batch.sum().item(), expected * 2 ** 20);
      expected++;
    }
    assert.equal(expected, 5);
  });

  it('pins memory on request', async () => {
    for await (const batch of new DataLoader([1, 2], { pinMemory: true }))
      assert.ok(batch.isPinned() && batch.isCpu);
    cuda.synchronize();
  });
});
