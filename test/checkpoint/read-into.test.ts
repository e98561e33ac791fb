/** Parts of stored tensors are read into tensors that are there, with checksums that add up. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { crc32 } from 'node:zlib';
import fc from 'fast-check';
import { addBytes, addZeros } from '../../lib/checkpoint/checksum.js';
import type { IndexRange } from '../../lib/checkpoint/ranges.js';
import {
  ArgumentError,
  arange,
  CheckpointError,
  float64,
  int32,
  SafetensorsFile,
  ShapeError,
  saveSafetensors,
  saveText,
  type Tensor,
  zeros,
} from '../../lib/index.js';

const folder = mkdtempSync(path.join(tmpdir(), 'shardwise-'));
const file = path.join(folder, 'state.safetensors');
after(() => rmSync(folder, { recursive: true, force: true }));

const counted = (shape: readonly number[]): Tensor =>
  arange(1, shape.reduce((a, b) => a * b, 1) + 1, { dtype: int32 }).reshape(shape);

async function opened<T>(use: (file: SafetensorsFile) => Promise<T>): Promise<T> {
  const stored = await SafetensorsFile.open(file);
  return use(stored).finally(() => stored.close());
}

describe('a checksum that begins at zero', () => {
  it('differs from CRC-32 only by its beginning and end', () => {
    const bytes = Buffer.from('123456789');
    const ones = 0xffffffff;
    assert.equal((addBytes(ones, bytes) ^ ones) >>> 0, crc32(bytes));
    assert.equal(addBytes(0, Buffer.alloc(1000)), 0);
  });

  it('counts zeros without reading them, as many as there are', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 50 }), fc.nat(70_000), (bytes, count) => {
        const all = Buffer.concat([bytes, Buffer.alloc(count)]);
        assert.equal(addZeros(addBytes(0, bytes), count), addBytes(0, all));
      }),
    );
  });

  it('of parts, with zeros in the place of the rest, gives that of the whole by XOR', () => {
    fc.assert(
      fc.property(fc.uint8Array({ minLength: 1, maxLength: 99 }), fc.nat(99), (bytes, at) => {
        const cut = at % bytes.length;
        const first = addZeros(addBytes(0, bytes.subarray(0, cut)), bytes.length - cut);
        const second = addBytes(0, bytes.subarray(cut));
        assert.equal((first ^ second) >>> 0, addBytes(0, bytes));
      }),
    );
  });
});

describe('SafetensorsFile.readInto', () => {
  it('fills targets of any layout and dtype with any part, and its checksums add up', async () => {
    const shapes = fc.array(fc.integer({ min: 1, max: 7 }), { minLength: 1, maxLength: 4 });
    await fc.assert(
      fc.asyncProperty(shapes, fc.nat(5), fc.nat(9), async (shape, dimSeed, at) => {
        const t = counted(shape);
        const { checksums } = await saveSafetensors(file, { t, other: counted([3]) });
        const dim = dimSeed % shape.length;
        const size = shape[dim] as number;
        const cut = at % (size + 1);
        const parts: IndexRange[] = [
          [0, cut],
          [cut, size],
        ];
        const targets = parts.map(([start, end]) =>
          zeros(shape.map((all, i) => (i === dim ? end - start : all)).reverse(), {
            dtype: float64,
          }).permute(shape.map((_, i) => shape.length - 1 - i)),
        );
        const sums = await opened((stored) =>
          stored.readInto(
            parts.map((range, i) => ({
              name: 't',
              ranges: shape.map((_, d) => (d === dim ? range : null)),
              into: targets[i] as Tensor,
            })),
          ),
        );
        parts.forEach(([start, end], i) => {
          assert.deepEqual(targets[i]?.tolist(), t.narrow(dim, start, end - start).tolist());
        });
        assert.equal(
          sums.reduce((a, b) => (a ^ b) >>> 0, 0),
          checksums['t'],
        );
      }),
      { numRuns: 60 },
    );
  });

  it('reads large parts a slab at a time, and small neighbours together', async () => {
    const large = counted([5, 2 ** 20]); // 20 MiB
    const small = Object.fromEntries(
      Array.from({ length: 50 }, (_, i) => [`small.${i}`, counted([100 + i])]),
    );
    const { checksums, bytes } = await saveSafetensors(file, { large, ...small });
    assert.equal(bytes, readFileSync(file).length);
    await opened(async (stored) => {
      const target = zeros([5, 2 ** 20], { dtype: int32 });
      assert.deepEqual(await stored.readInto([{ name: 'large', into: target }]), [
        checksums['large'],
      ]);
      assert.ok(target.equal(large));
      const [reads, bytesRead] = [stored.reads, stored.bytesRead];
      const targets = Object.keys(small).map((name, i) => ({
        name,
        into: zeros([100 + i], { dtype: int32 }),
      }));
      await stored.readInto(targets);
      assert.equal(stored.reads - reads, 1);
      assert.equal(
        stored.bytesRead - bytesRead,
        targets.reduce((n, { into }) => n + into.nbytes, 0),
      );
      for (const { name, into } of targets) assert.ok(into.equal(small[name] as Tensor));
    });
  });

  it('reads the bytes between neighbours only within the slack', async () => {
    await saveSafetensors(file, { a: counted([10]), gap: counted([100]), b: counted([10]) });
    const requests = () =>
      ['a', 'b'].map((name) => ({ name, into: zeros([10], { dtype: int32 }) }));
    await opened(async (stored) => {
      await stored.readInto(requests(), { slackBytes: 399 });
      assert.deepEqual([stored.reads, stored.bytesRead], [2, 80]);
      await stored.readInto(requests());
      assert.deepEqual([stored.reads, stored.bytesRead], [3, 560]);
    });
  });

  it('refuses names, ranges and targets that do not fit', async () => {
    await saveSafetensors(file, { t: counted([4, 2]) });
    const into = zeros([4, 2]);
    await opened(async (stored) => {
      await assert.rejects(stored.readInto([{ name: 'x', into }]), CheckpointError);
      await assert.rejects(stored.readInto([{ name: 't', ranges: [[0, 2]], into }]), ShapeError);
      await assert.rejects(stored.readInto([{ name: 't', into: 3 as never }]), ArgumentError);
      await assert.rejects(stored.readInto('t' as never), ArgumentError);
      assert.deepEqual(stored.metaOf('t').shape, [4, 2]);
      assert.throws(() => stored.metaOf('x'), CheckpointError);
    });
  });
});

describe('saveText', () => {
  it('replaces a text, and refuses what is no text or no path', async () => {
    const name = path.join(folder, 'text');
    await saveText(name, 'one');
    await saveText(name, 'two ä');
    assert.equal(readFileSync(name, 'utf8'), 'two ä');
    await assert.rejects(saveText('', 'x'), ArgumentError);
    await assert.rejects(saveText(name, 3 as never), ArgumentError);
    await assert.rejects(saveText(path.join(folder, 'none', 'x'), 'x'), CheckpointError);
  });
});
