/** Samples of files: NDJSON by lines, and windows of token files. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { gzipSync } from 'node:zlib';
import { DataLoader, ndjson, tokenWindows } from '../../lib/data/index.js';
import { int64 } from '../../lib/index.js';

async function all<T>(batches: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const batch of batches) found.push(batch);
  return found;
}

describe('files of samples', () => {
  let folder: string;
  const at = (name: string): string => path.join(folder, name);

  before(() => {
    folder = mkdtempSync(path.join(tmpdir(), 'shardwise-files-'));
  });
  after(() => rmSync(folder, { recursive: true }));

  describe('ndjson', () => {
    const rows = Array.from({ length: 9 }, (_, i) => ({ x: [i, i + 1], y: i % 2 }));
    const text = `${rows.map((row) => JSON.stringify(row)).join('\n')}\r\n\n`;

    it('gives each row, of plain and compressed files, in every epoch', async () => {
      writeFileSync(at('rows.ndjson'), text);
      writeFileSync(at('rows.ndjson.gz'), gzipSync(text));
      for (const file of [at('rows.ndjson'), pathToFileURL(at('rows.ndjson.gz'))]) {
        const loader = new DataLoader(ndjson<(typeof rows)[number]>(file), { batchSize: 4 });
        for (let epoch = 0; epoch < 2; epoch++) {
          const batches = await all(loader);
          assert.deepEqual(
            batches.flatMap(({ x }) => x.tolist()),
            rows.map(({ x }) => x),
          );
          assert.deepEqual(batches[2]?.y.tolist(), [0]);
        }
      }
    });

    it('is shared by ranks, and resumed', async () => {
      writeFileSync(at('numbers.ndjson'), Array.from({ length: 13 }, (_, i) => i).join('\n'));
      const of = (numReplicas: number, rank: number) =>
        new DataLoader(ndjson<number>(at('numbers.ndjson')), {
          batchSize: 2,
          numReplicas,
          rank,
          collateFn: (numbers) => numbers,
        });
      const got: number[] = [];
      const first = of(2, 0);
      for (const loader of [first, of(2, 1)])
        for await (const batch of loader) {
          got.push(...batch);
          break;
        }
      for (const rank of [0, 1, 2]) {
        const loader = of(3, rank);
        loader.loadStateDict(first.stateDict());
        got.push(...(await all(loader)).flat());
      }
      assert.deepEqual(
        got.sort((a, b) => a - b),
        Array.from({ length: 13 }, (_, i) => i),
      );
    });

    it('names the line that is not JSON, and a file that is missing or damaged', async () => {
      writeFileSync(at('bad.ndjson'), '{"x":1}\n\n{"x":\n');
      await assert.rejects(
        all(new DataLoader(ndjson(at('bad.ndjson')))),
        /position 1 of epoch 0 cannot be loaded: .*bad\.ndjson:3 is not JSON: /,
      );
      await assert.rejects(all(new DataLoader(ndjson(at('none.ndjson')))), { code: 'ENOENT' });
      writeFileSync(at('cut.ndjson.gz'), gzipSync(text).subarray(0, 30));
      await assert.rejects(all(new DataLoader(ndjson(at('cut.ndjson.gz')))), {
        code: 'Z_BUF_ERROR',
      });
      assert.throws(() => ndjson(3 as never), /expected file to be a path or a file URL, got 3/);
    });
  });

  describe('tokenWindows', () => {
    const tokens = Array.from({ length: 41 }, (_, i) => (i * 7919) % 65536);

    for (const [dtype, Tokens] of [
      ['uint16', Uint16Array],
      ['uint32', Uint32Array],
    ] as const)
      it(`reads windows of a file of ${dtype}, with the token after each`, async () => {
        const values = tokens.map((t) => (dtype === 'uint32' ? t * 60_000 + 5 : t));
        writeFileSync(at(dtype), Tokens.from(values));
        using windows = tokenWindows(at(dtype), { length: 10, dtype });
        assert.deepEqual([windows.length, windows.tokens], [4, 41]);
        const loader = new DataLoader(windows, { batchSize: 2 });
        const batches = await all(loader);
        assert.deepEqual(batches[0]?.inputs.shape, [2, 10]);
        assert.equal(batches[0]?.inputs.dtype, int64);
        const flat = (name: 'inputs' | 'targets') =>
          batches.flatMap((b) => b[name].tolist()).flat();
        assert.deepEqual(flat('inputs'), values.slice(0, 40));
        assert.deepEqual(flat('targets'), values.slice(1, 41));
      });

    it('has windows at each stride, of memory too', async () => {
      const windows = tokenWindows(tokens, { length: 10, stride: 1 });
      assert.equal(windows.length, 31);
      const { inputs, targets } = await windows.get(30);
      assert.deepEqual([...inputs].map(Number), tokens.slice(30, 40));
      assert.deepEqual([...targets].map(Number), tokens.slice(31, 41));
      assert.equal(tokenWindows(new Uint8Array(257), { length: 128 }).length, 2);
    });

    it('refuses files of parts of tokens or too few, and says when a file was cut off or closed', async () => {
      writeFileSync(at('odd'), new Uint8Array(41));
      assert.throws(
        () => tokenWindows(at('odd'), { length: 4 }),
        /expected a file of uint16, 2 bytes each, got .*odd of 41 bytes/,
      );
      assert.throws(
        () => tokenWindows([1, 2, 3], { length: 3 }),
        /expected more tokens than the 3 of a window, got 3/,
      );
      assert.throws(() => tokenWindows(at('none'), { length: 3 }), { code: 'ENOENT' });
      writeFileSync(at('file'), Uint16Array.from(tokens));
      const windows = tokenWindows(at('file'), { length: 10 });
      truncateSync(at('file'), 70);
      await assert.rejects(all(new DataLoader(windows)), {
        code: 'ERR_DATA',
        message: /sample 3 .* ended at byte 70; it had 82 bytes/,
      });
      windows.close();
      windows.close();
      await assert.rejects(Promise.resolve(windows.get(0)), /was closed/);
    });
  });
});
