/** Memory of a GPU: garbage collection and scratch memory of kernels. */
import assert from 'node:assert/strict';
import type { memory } from '../../lib/index.js';
import { runProgram } from '../run-program.js';
import { skipWithoutCuda } from '../skip.js';
import { assertFlat } from './flat-memory.js';

describe('the garbage collector on CUDA', () => {
  before(function () {
    skipWithoutCuda(this);
  });

  it('keeps an eager training loop of 20,000 steps without scopes flat', async function () {
    this.timeout(120000);
    assertFlat(await runProgram('core/programs/training-loop', 'cuda', '20000'));
  });
});

describe('scratch memory of CUDA kernels', () => {
  interface Report {
    error: { code: string; message: string; details: Record<string, unknown> } | null;
    before: memory.MemorySnapshot['stats'];
    emptied: memory.MemorySnapshot['stats'];
    large: memory.MemorySnapshot['stats'];
    after: memory.MemorySnapshot['stats'];
    sum: number[];
    scratchBlocks: { bytes: number }[];
  }
  const GIB = 2 ** 30;
  let report: Report;

  before(async function () {
    this.timeout(120000);
    skipWithoutCuda(this);
    report = await runProgram('core/programs/scratch-memory');
  });

  it('throws OutOfMemoryError with the op and the numbers if tensors fill the device', () => {
    const { error } = report;
    assert.equal(error?.code, 'ERR_OUT_OF_MEMORY', error?.message);
    assert.match(
      error.message,
      /index_add\(.*out of memory: \d+ bytes were requested; allocated \d+, reserved \d+, free on the device/s,
    );
    assert.ok((error.details.requestedBytes as number) >= 2 * GIB, error.message);
  });

  it('comes from memory that the cache frees', () => {
    assert.ok(report.emptied.cachedBytes > 4 * GIB);
    assert.deepEqual(report.sum.slice(0, 5), [0, 0, 0, 2 ** 27, 0]);
    assert.ok(report.large.reservedBytes < report.emptied.reservedBytes);
    assert.ok(report.after.outOfMemoryRetries > report.before.outOfMemoryRetries);
  });

  it('is counted separately from the memory of tensors', () => {
    assert.equal(report.large.scratchBytes, 0);
    assert.ok(
      report.after.scratchBytes > 0 && report.after.scratchBytes < GIB / 10,
      String(report.after.scratchBytes),
    );
    assert.equal(report.after.allocatedBytes, report.emptied.allocatedBytes);
    assert.equal(
      report.scratchBlocks.reduce((sum, block) => sum + block.bytes, 0),
      report.after.scratchBytes,
    );
  });
});
