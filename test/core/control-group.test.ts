/**
 * The memory of a container. SHARDWISE_CONTROL_GROUPS names a folder with files as the system has
 * them; memory is allocated and never written, because these files do not count it.
 */
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { runProgramWith } from '../run-program.js';

interface Report {
  filled: number;
  totalBytes: number | null;
  peakReservedBytes: number;
}

const MIB = 2 ** 20;
const LIMIT = 256 * MIB;
const USED = 100 * MIB;
/** Pages of files, which the system takes back. */
const CACHED = 40 * MIB;
const FREE_TENSORS = (LIMIT - USED + CACHED) / (4 * MIB);
/** Of every process that has a page, not of tensors. */
const SPARE_TENSORS = 8;

const second = {
  'memory.max': LIMIT,
  'memory.current': USED,
  'memory.stat': `anon 1\ninactive_file ${CACHED - 1}\nactive_file 1\nslab 7\n`,
};
const first = {
  'memory/memory.limit_in_bytes': LIMIT,
  'memory/memory.usage_in_bytes': USED,
  'memory/memory.stat': `inactive_file 7\ntotal_inactive_file ${CACHED - 1}\ntotal_active_file 1\n`,
};

describe('a control group', function () {
  this.timeout(60_000);
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(path.join(tmpdir(), 'shardwise-groups-'));
  });
  afterEach(() => rmSync(folder, { recursive: true }));

  function run(files: Readonly<Record<string, string | number>>): Promise<Report> {
    for (const [name, text] of Object.entries(files)) {
      mkdirSync(path.dirname(path.join(folder, name)), { recursive: true });
      writeFileSync(path.join(folder, name), `${text}\n`);
    }
    return runProgramWith<Report>(
      { SHARDWISE_CONTROL_GROUPS: folder },
      'core/programs/control-group',
    );
  }

  for (const [version, files] of Object.entries({ 'version 2': second, 'version 1': first }))
    it(`of ${version} limits memory: first a collection, then an OutOfMemoryError`, async () => {
      const { filled, totalBytes, peakReservedBytes } = await run(files);
      assert.equal(totalBytes, LIMIT);
      assert.ok(Math.abs(filled - FREE_TENSORS) <= SPARE_TENSORS, `${filled} of ${FREE_TENSORS}`);
      assert.ok(peakReservedBytes <= LIMIT - USED + CACHED, String(peakReservedBytes));
    });

  it('of both versions has the memory of the smaller', async () => {
    const { totalBytes } = await run({ ...second, ...first, 'memory.max': LIMIT / 2 });
    assert.equal(totalBytes, LIMIT / 2);
  });

  it('without a limit leaves the memory of the host', async () => {
    const most = 2n ** 63n - 4096n; // what version 1 has in place of none
    const files = { ...first, 'memory/memory.limit_in_bytes': String(most) };
    const { filled, totalBytes } = await run({ ...second, ...files, 'memory.max': 'max' });
    assert.deepEqual([filled, totalBytes], [200, null]);
  });
});
