/** Parts of tensors are read from safetensors files at the cost of the part. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, truncateSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import type { IndexRange } from '../../lib/checkpoint/ranges.js';
import { readSelection, readsOf, selectionOf } from '../../lib/checkpoint/ranges.js';
import {
  ArgumentError,
  arange,
  bfloat16,
  CheckpointError,
  IndexError,
  int32,
  SafetensorsFile,
  ShapeError,
  saveSafetensors,
  type Tensor,
  tensor,
} from '../../lib/index.js';

const folder = mkdtempSync(path.join(tmpdir(), 'shardwise-'));
const file = path.join(folder, 'state.safetensors');
after(() => rmSync(folder, { recursive: true, force: true }));

const counted = (shape: readonly number[]): Tensor =>
  arange(
    shape.reduce((a, b) => a * b, 1),
    { dtype: int32 },
  ).reshape(shape);

/** The part as `narrow` gives it. */
const part = (t: Tensor, ranges: readonly (IndexRange | null)[]): Tensor =>
  ranges.reduce<Tensor>(
    (rest, range, dim) => (range === null ? rest : rest.narrow(dim, range[0], range[1] - range[0])),
    t,
  );

/** A shape, and ranges for some of its dims. */
const selections = fc.array(fc.integer({ min: 0, max: 7 }), { maxLength: 4 }).chain((shape) =>
  fc.record({
    shape: fc.constant(shape),
    ranges: fc
      .tuple(
        ...shape.map((size) =>
          fc.option(
            fc
              .tuple(fc.integer({ min: 0, max: size }), fc.integer({ min: 0, max: size }))
              .map(([a, b]): IndexRange => [Math.min(a, b), Math.max(a, b)]),
          ),
        ),
      )
      .chain((ranges) =>
        fc.integer({ min: 0, max: shape.length }).map((count) => ranges.slice(0, count)),
      ),
  }),
);

/** Opens a file of one tensor `t`, for as long as `use` runs. */
async function opened<T>(t: Tensor, use: (stored: SafetensorsFile) => Promise<T>): Promise<T> {
  await saveSafetensors(file, { before: tensor([1, 2]), t, after: tensor([3]) });
  const stored = await SafetensorsFile.open(file);
  try {
    return await use(stored);
  } finally {
    await stored.close();
  }
}

describe('SafetensorsFile.get with ranges', () => {
  it('reads the elements that narrow selects, for any shape and ranges', async () => {
    await fc.assert(
      fc.asyncProperty(selections, async ({ shape, ranges }) => {
        const t = counted(shape);
        const read = await opened(t, (stored) => stored.get('t', { ranges }));
        const expected = part(t, ranges);
        assert.deepEqual([read.shape, read.tolist()], [expected.shape, expected.tolist()]);
      }),
      { numRuns: 60 },
    );
  });

  it('reads rows by one read of their own bytes', () =>
    opened(counted([1000, 50]), async (stored) => {
      const rows = await stored.get('t', { ranges: [[200, 450]] });
      assert.deepEqual(rows.shape, [250, 50]);
      assert.deepEqual([stored.reads, stored.bytesRead], [1, 250 * 50 * 4]);
    }));

  it('reads columns by a read for each row, and little more than their bytes', () =>
    opened(counted([300, 400]), async (stored) => {
      const ranges = [null, [100, 200]] as const;
      const columns = await stored.get('t', { ranges });
      assert.deepEqual(columns.tolist(), part(counted([300, 400]), ranges).tolist());
      assert.ok(stored.bytesRead - 300 * 100 * 4 <= 2048, `${stored.bytesRead} bytes`);
      assert.ok(stored.reads <= 300);
    }));

  it('reads a small part with gaps at once', () =>
    opened(counted([8, 16]), async (stored) => {
      await stored.get('t', {
        ranges: [
          [1, 7],
          [4, 12],
        ],
      });
      assert.equal(stored.reads, 1);
    }));

  it('reads all shards of a tensor for the bytes of the tensor', () =>
    opened(counted([30, 20, 10]), async (stored) => {
      for (let i = 0; i < 3; i++)
        for (let j = 0; j < 2; j++)
          await stored.get('t', {
            ranges: [
              [i * 10, (i + 1) * 10],
              [j * 10, (j + 1) * 10],
            ],
          });
      assert.ok(stored.bytesRead - 30 * 20 * 10 * 4 <= 6 * 2048);
    }));

  it('keeps the dtype, and reads nothing onto meta', () =>
    opened(
      tensor([
        [0, 1],
        [2, 3],
      ]).to(bfloat16),
      async (stored) => {
        const last = await stored.get('t', {
          ranges: [
            [1, 2],
            [0, 1],
          ],
        });
        assert.deepEqual([last.dtype, last.tolist()], [bfloat16, [[2]]]);
        const before = [stored.reads, stored.bytesRead];
        const meta = await stored.get('t', { ranges: [[1, 2]], device: 'meta' });
        assert.deepEqual([meta.isMeta, meta.dtype, meta.shape], [true, bfloat16, [1, 2]]);
        assert.deepEqual([stored.reads, stored.bytesRead], before);
      },
    ));

  it('reads parts of bools', () =>
    opened(tensor([true, false, true]), async (stored) => {
      assert.deepEqual((await stored.get('t', { ranges: [[1, 3]] })).tolist(), [false, true]);
    }));

  it('refuses what does not fit the tensor', () =>
    opened(counted([4, 6]), async (stored) => {
      const get = (ranges: unknown): Promise<Tensor> => stored.get('t', { ranges: ranges as [] });
      await assert.rejects(get(3), ArgumentError);
      await assert.rejects(get([[0]]), ArgumentError);
      await assert.rejects(get([[0, 1.5]]), ArgumentError);
      await assert.rejects(get(['ab']), ArgumentError);
      await assert.rejects(get([null, null, [0, 1]]), ShapeError);
      await assert.rejects(
        get([[0, 5]]),
        /IndexError.*ranges\[0\] to be within \[0, 4\], got \[0, 5\]/,
      );
      await assert.rejects(get([null, [3, 2]]), IndexError);
      await assert.rejects(get([[-1, 2]]), IndexError);
      await assert.rejects(stored.get('none', { ranges: [] }), CheckpointError);
    }));

  it('reports a file that became shorter, once all reads have ended', () =>
    opened(counted([300, 400]), async (stored) => {
      truncateSync(file, 200_000);
      await assert.rejects(
        stored.get('t', { ranges: [null, [100, 200]] }),
        (error: Error) => error instanceof CheckpointError && error.message.includes(file),
      );
      assert.deepEqual(
        (
          await stored.get('t', {
            ranges: [
              [0, 1],
              [0, 2],
            ],
          })
        ).tolist(),
        [[0, 1]],
      );
    }));
});

describe('the reads of a selection', () => {
  it('cover the part in order, once, with at most 2048 bytes more', () => {
    fc.assert(
      fc.property(selections, fc.constantFrom(1, 4, 512), ({ shape, ranges }, itemsize) => {
        const selection = selectionOf('test', ranges, shape);
        const reads = [...readsOf(shape, selection, itemsize)];
        const own = selection.sizes.reduce((a, b) => a * b, itemsize);
        const bytes = reads.reduce((sum, { begin, end }) => sum + end - begin, 0);
        assert.ok(bytes >= own && bytes <= own + 2048);
        reads.forEach(({ begin }, i) => assert.ok(i === 0 || begin >= (reads[i - 1]?.end ?? 0)));
      }),
    );
  });

  it('are as few as the runs of the part', () => {
    const count = (shape: number[], ranges: (IndexRange | null)[]): number =>
      [...readsOf(shape, selectionOf('test', ranges, shape), 4096)].length;
    assert.equal(count([8, 8, 8], []), 1);
    assert.equal(count([8, 8, 8], [[2, 5]]), 1);
    assert.equal(
      count(
        [8, 8, 8],
        [
          [2, 3],
          [1, 4],
        ],
      ),
      1,
    );
    assert.equal(
      count(
        [8, 8, 8],
        [
          [2, 5],
          [1, 4],
        ],
      ),
      3,
    );
    assert.equal(count([8, 8, 8], [null, null, [0, 1]]), 64);
    assert.equal(count([8, 0, 8], [[0, 3]]), 0);
  });

  it('transfer large parts in calls that may give less than asked', async () => {
    const content = Uint8Array.from({ length: 64 }, (_, i) => i);
    const read = async (into: Uint8Array, offset: number, length: number, at: number) => {
      const bytesRead = Math.min(3, length);
      into.set(content.subarray(at, at + bytesRead), offset);
      return { bytesRead, buffer: into };
    };
    const bytes = new Uint8Array(8);
    const stored = {
      shape: [4, 4],
      itemsize: 2,
      selection: selectionOf(
        'test',
        [
          [1, 3],
          [1, 3],
        ],
        [4, 4],
      ),
    };
    await readSelection({ read } as never, 'f', 10, stored, bytes);
    assert.deepEqual([...bytes], [20, 21, 22, 23, 28, 29, 30, 31]);
  });
});
