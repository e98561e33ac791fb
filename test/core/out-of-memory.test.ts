/**
 * Running out of memory throws an error with the numbers, and the process continues.
 * SHARDWISE_CPU_MEMORY_LIMIT makes the machine small.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import type { memory } from '../../lib/index.js';
import { programArguments } from '../run-program.js';

interface Failure {
  kind: string;
  code: string;
  message: string;
  holders: memory.MemoryHolder[];
}

interface Report {
  filled: Failure;
  atOnce: Failure;
  byOp: Failure;
  count: number;
  still: number;
  total: number;
  passed: number;
  reserved: number;
  retries: number;
}

const MIB = 2 ** 20;
const LIMIT = 64 * MIB;

/**
 * The numbers of `out of memory: N bytes were requested; allocated N, reserved N, free on the
 * device N of N`.
 */
function numbersOf({ kind, code, message }: Failure): {
  requested: number;
  allocated: number;
  reserved: number;
  free: number;
  total: number;
} {
  assert.equal(kind, 'OutOfMemoryError', message);
  assert.equal(code, 'ERR_OUT_OF_MEMORY');
  const found =
    /out of memory: (\d+) bytes were requested; allocated (\d+), reserved (\d+), free on the device (\d+) of (\d+)/.exec(
      message,
    );
  assert.ok(found, message);
  const [requested, allocated, reserved, free, total] = found.slice(1).map(Number) as [
    number,
    number,
    number,
    number,
    number,
  ];
  return { requested, allocated, reserved, free, total };
}

function runChild(environment: Readonly<Record<string, string>>): Report {
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    programArguments('core/programs/out-of-memory'),
    {
      encoding: 'utf8',
      env: { ...process.env, SHARDWISE_CPU_MEMORY_LIMIT: String(LIMIT), ...environment },
    },
  );
  assert.equal(status, 0, stderr);
  return JSON.parse(stdout) as Report;
}

describe('OutOfMemoryError', () => {
  let report: Report;

  before(function () {
    this.timeout(60_000);
    report = runChild({ SHARDWISE_MEMORY_HISTORY: '0' });
  });

  it('says how many bytes were requested, allocated, reserved and free', () => {
    const { requested, allocated, reserved, free, total } = numbersOf(report.filled);
    assert.equal(total, LIMIT);
    assert.ok(requested >= 4 * MIB && requested < 5 * MIB, String(requested));
    assert.ok(report.count >= 14 && report.count <= 16, String(report.count));
    assert.ok(
      allocated >= report.count * 4 * MIB && allocated <= reserved && reserved <= LIMIT,
      `${allocated} ${reserved}`,
    );
    assert.equal(free, LIMIT - reserved);
  });

  it('says how many bytes were requested for a tensor that could never fit', () => {
    assert.ok(numbersOf(report.atOnce).requested >= 400 * MIB);
  });

  it('names the op and its operands', () => {
    assert.match(report.byOp.message, /^add: .*\n {2}operands: float32\[1048576\] on cpu/);
    numbersOf(report.byOp);
  });

  it('lists the largest groups of storages, and says how to record their ops', () => {
    const { holders, message } = report.filled;
    const unknown = { op: null, dtype: null, shape: null, memory: 'allocator' };
    assert.deepEqual(holders, [
      { bytes: report.count * 4 * MIB, count: report.count, bytesEach: 4 * MIB, ...unknown },
      { bytes: 1_200_000, count: 1, bytesEach: 1_200_000, ...unknown },
      { bytes: 4000, count: 1, bytesEach: 4000, ...unknown },
    ]);
    const lines = message.split('\n');
    assert.equal(
      lines[1],
      `  largest holders on cpu, of ${report.count + 2} live storages with ${report.count * 4 * MIB + 1_204_000} bytes:`,
    );
    assert.equal(lines[2], `    ${report.count * 4 * MIB} bytes in ${report.count} x ${4 * MIB}`);
    assert.match(
      lines.at(-1) as string,
      /memory\.recordHistory\(true\).*SHARDWISE_MEMORY_HISTORY=1/,
    );
  });

  it('leaves all tensors usable, and memory can be allocated again', () => {
    assert.equal(report.still, 0);
    assert.equal(report.total, MIB);
    assert.ok(report.retries > 0);
  });

  it('is not thrown if collecting garbage frees enough', () => {
    assert.equal(report.passed, MIB);
  });
});

describe('OutOfMemoryError with recorded history', () => {
  it('names shape, dtype and op of the largest groups of storages', function () {
    this.timeout(60_000);
    const { filled, count } = runChild({ SHARDWISE_MEMORY_HISTORY: '1' });
    assert.deepEqual(filled.holders, [
      {
        bytes: count * 4 * MIB,
        count,
        bytesEach: 4 * MIB,
        op: 'full',
        dtype: 'float32',
        shape: [MIB],
        memory: 'allocator',
      },
      {
        bytes: 1_200_000,
        count: 1,
        bytesEach: 1_200_000,
        op: 'add',
        dtype: 'float32',
        shape: [300, 1000],
        memory: 'allocator',
      },
      {
        bytes: 4000,
        count: 1,
        bytesEach: 4000,
        op: 'full',
        dtype: 'float64',
        shape: [500],
        memory: 'allocator',
      },
    ]);
    assert.match(
      filled.message,
      /\n {4}1200000 bytes in 1 x 1200000: float32\[300, 1000\] made by add\n/,
    );
    assert.doesNotMatch(filled.message, /recordHistory/);
  });
});
