/** Running out of memory is an error that says how much there was, and the process goes on. SHARDWISE_CPU_MEMORY_LIMIT makes the machine small. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { programArguments } from '../run-program.js';

interface Failure {
  kind: string;
  code: string;
  message: string;
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

/** The numbers of `out of memory: N bytes were requested; allocated N, reserved N, free on the device N of N`. */
function numbersOf({ kind, code, message }: Failure): { requested: number; allocated: number; reserved: number; free: number; total: number } {
  assert.equal(kind, 'OutOfMemoryError', message);
  assert.equal(code, 'ERR_OUT_OF_MEMORY');
  const found = /out of memory: (\d+) bytes were requested; allocated (\d+), reserved (\d+), free on the device (\d+) of (\d+)/.exec(message);
  assert.ok(found, message);
  const [requested, allocated, reserved, free, total] = found.slice(1).map(Number) as [number, number, number, number, number];
  return { requested, allocated, reserved, free, total };
}

describe('out of memory', () => {
  let report: Report;

  before(function () {
    this.timeout(60_000);
    const { status, stdout, stderr } = spawnSync(process.execPath, programArguments('core/programs/out-of-memory'), {
      encoding: 'utf8',
      env: { ...process.env, SHARDWISE_CPU_MEMORY_LIMIT: String(LIMIT) },
    });
    assert.equal(status, 0, stderr);
    report = JSON.parse(stdout) as Report;
  });

  it('says what was requested, allocated, reserved and free', () => {
    const { requested, allocated, reserved, free, total } = numbersOf(report.filled);
    assert.equal(total, LIMIT);
    assert.ok(requested >= 4 * MIB && requested < 5 * MIB, String(requested));
    assert.ok(report.count >= 14 && report.count <= 16, String(report.count));
    assert.ok(allocated >= report.count * 4 * MIB && allocated <= reserved && reserved <= LIMIT, `${allocated} ${reserved}`);
    assert.equal(free, LIMIT - reserved);
  });

  it('tells a tensor that could never fit from memory that is full', () => {
    assert.ok(numbersOf(report.atOnce).requested >= 400 * MIB);
  });

  it('names the op and its operands', () => {
    assert.match(report.byOp.message, /^add: .*\n {2}operands: float32\[1048576\] on cpu/);
    numbersOf(report.byOp);
  });

  it('leaves the process as it was, with all tensors usable and memory to be had again', () => {
    assert.equal(report.still, 0);
    assert.equal(report.total, MIB);
    assert.ok(report.retries > 0);
  });

  it('collects garbage before it gives up', () => {
    assert.equal(report.passed, MIB);
  });
});
