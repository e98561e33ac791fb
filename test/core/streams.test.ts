/** Memory that is used on several streams is reused in order. */
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  ArgumentError,
  cuda,
  empty,
  FreedError,
  full,
  memory,
  ones,
  type Tensor,
  zeros,
} from '../../lib/index.js';
import { skipBecause } from '../skip.js';
import { newStream } from './on-streams.js';

describe('a tensor that is first used on another stream than that of its creation', () => {
  it('waits for earlier readers of its memory', () => {
    const n = 1024;
    const side = new cuda.Stream({ device: 'cpu' });
    const halves = zeros([n, n]).fill_(0.5);
    for (let attempt = 0; attempt < 3; attempt++) {
      const x = ones([n, n]);
      const product = x.mm(halves); // takes milliseconds
      x.dispose();
      const y = empty([n, n]); // the memory of x
      cuda.stream(side, () => y.fill_(7));
      assert.deepEqual([product.amin().item(), product.amax().item()], [n * 0.5, n * 0.5]);
      assert.equal(y.amin().item(), 7);
      for (const t of [product, y]) t.dispose();
    }
  });
});

describe('memory that another stream used last', () => {
  const MIB = 2 ** 20;

  for (const order of ['before', 'after'] as const)
    it(`comes back as soon as its own stream waits for that use, if it is freed ${order} the wait`, async () => {
      const side = new cuda.Stream({ device: 'cpu' });
      const matrix = ones([1500, 1500]);
      const x = ones([2 ** 22]);
      memory.collect();
      await sleep(50); // for what other streams still have of tests before
      const kept = memory.stats().allocatedBytes;
      cuda.stream(side, () => matrix.mm(matrix).dispose()); // takes milliseconds
      const sum = cuda.stream(side, () => x.sum());
      if (order === 'before') x.dispose();
      assert.ok(memory.stats().allocatedBytes > kept - MIB);
      const next = sum.add(1); // waits for the sum
      if (order === 'after') x.dispose();
      assert.ok(memory.stats().allocatedBytes <= kept - 15 * MIB);
      assert.equal(side.query(), false);
      const reuse = zeros([2 ** 22]); // the memory of x
      assert.deepEqual([next.item(), reuse.amax().item()], [2 ** 22 + 1, 0]);
    });
});

describe('recordStream', () => {
  it('keeps the memory of a freed tensor until the stream has used it', async () => {
    const side = new cuda.Stream({ device: 'cpu' });
    const matrix = ones([1500, 1500]);
    const x = ones([2 ** 22]);
    memory.collect();
    await sleep(50); // for what other streams still have of tests before
    const kept = memory.stats().allocatedBytes;
    const product = cuda.stream(side, () => matrix.mm(matrix)); // takes milliseconds
    x.recordStream(side);
    product.dispose();
    x.dispose();
    const MIB = 2 ** 20;
    assert.ok(memory.stats().allocatedBytes > kept - MIB);
    assert.equal(side.query(), false);
    side.synchronize();
    assert.equal(side.query(), true);
    assert.ok(memory.stats().allocatedBytes <= kept - 16 * MIB);
  });

  it('refuses a value that is not a stream, and disposed tensors and streams', () => {
    const x = ones([2]);
    assert.throws(() => x.recordStream(3 as never), ArgumentError);
    const gone = new cuda.Stream({ device: 'cpu' });
    gone.dispose();
    assert.throws(() => x.recordStream(gone), FreedError);
    x.dispose();
    assert.throws(() => x.recordStream(new cuda.Stream({ device: 'cpu' })), FreedError);
  });
});

const threads = (): number =>
  Number(/Threads:\s+(\d+)/.exec(readFileSync('/proc/self/status', 'utf8'))?.[1]);

/** Waits until no more than `most` threads are there, for two seconds. */
async function threadsFallTo(most: number, meanwhile = (): void => {}): Promise<void> {
  for (let i = 0; i < 100 && threads() > most; i++) {
    meanwhile();
    await sleep(20);
  }
  assert.ok(threads() <= most, `${threads()} threads instead of ${most}`);
}

/** Gives a stream something that its thread must do. */
function use(s: cuda.Stream, value: number): Tensor {
  return cuda.stream(s, () => full([300, 300], value).mul(2));
}

describe('a stream that is disposed or dropped', () => {
  before(function () {
    if (!existsSync('/proc/self/status')) skipBecause(this, 'no /proc to count threads in');
    use(newStream(), 1).dispose();
  });

  it('ends its thread when it is disposed, and keeps the tensors created on it', async () => {
    const before = threads();
    const streams = Array.from({ length: 30 }, newStream);
    const made = streams.map(use);
    assert.ok(threads() >= before + 20);
    for (const s of streams) s.dispose();
    await threadsFallTo(before + 1);
    const sums = made.map((t, i) => t.add(i).amax().item());
    assert.deepEqual(
      sums,
      streams.map((_, i) => 3 * i),
    );
    for (const t of made) t.mul_(2).dispose();
  });

  it('ends its thread when it is garbage collected', async () => {
    const before = threads();
    for (let i = 0; i < 30; i++) use(newStream(), i).dispose();
    await threadsFallTo(before + 1, () => memory.collect());
  });

  it('finishes its queued work without blocking', async () => {
    const s = newStream();
    const x = ones([1200, 1200]);
    const product = cuda.stream(s, () => x.mm(x).mm(x));
    s.dispose();
    assert.equal(product.amax().item(), 1200 * 1200);
  });

  it('is refused afterwards, and can be disposed twice', () => {
    const s = newStream();
    s[Symbol.dispose]();
    s.dispose();
    assert.throws(() => s.synchronize(), FreedError);
    assert.throws(() => cuda.stream(s, () => 1), FreedError);
    assert.throws(() => new cuda.Event().record(s), FreedError);
  });

  it('gives its slot to the next stream', () => {
    const ids = new Set<number>();
    for (let i = 0; i < 50; i++) {
      const s = newStream();
      ids.add(s.id);
      assert.equal(use(s, i).amin().item(), 2 * i);
      s.synchronize();
      s.dispose();
    }
    assert.ok(ids.size < 10, `${ids.size} streams`);
  });
});

describe('cuda.stream', () => {
  it('refuses an asynchronous function, and restores the stream', async () => {
    const s = newStream();
    const before = ones([1]).device.currentStream;
    assert.throws(() => cuda.stream(s, async () => 1), ArgumentError);
    assert.equal(ones([1]).device.currentStream, before);
  });
});
