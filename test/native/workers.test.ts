/**
 * Environments of one process: the main thread and its workers share devices, never memory that is
 * in use.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createRequire } from 'node:module';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Worker } from 'node:worker_threads';
import { full, ones } from '../../lib/index.js';
import { addon } from '../../lib/runtime.js';

const gypBuild = createRequire(import.meta.url).resolve('node-gyp-build');
const root = path.resolve(import.meta.dirname, '..', '..');

/** A worker with the addon that runs `body` at each message, and answers. */
async function workerThat(body: string): Promise<Worker> {
  const script = `
    const { parentPort, workerData } = require('node:worker_threads');
    const addon = require(workerData.gypBuild)(workerData.root);
    const words = new Float64Array(addon.words);
    const stream = addon.defaultStream(0);
    parentPort.on('message', () => {
      ${body}
      parentPort.postMessage('done');
    });
    parentPort.postMessage('ready');`;
  const worker = new Worker(script, { eval: true, execArgv: [], workerData: { gypBuild, root } });
  worker.unref(); // a test that fails must not wait for it
  await once(worker, 'message');
  return worker;
}

describe('workers', () => {
  it('do not get memory that commands of another thread still use', async () => {
    const n = 100_000;
    const worker = await workerThat(`
      for (let i = 0; i < 8; i++) {
        addon.allocate(stream, ${n * 4}, false);
        addon.write(words[0], 0, new Float32Array(${n}).fill(7), stream);
      }`);
    const large = ones([4_000_000]);
    const a = full([n], 1);
    for (let i = 0; i < 150; i++) large.add_(1);
    const b = a.add(1);
    a.dispose(); // its memory may be used again by commands that come after it, here
    const answered = once(worker, 'message');
    worker.postMessage('go');
    await answered;
    const values = await b.read();
    assert.ok(
      values.every((value) => value === 2),
      `${values.slice(0, 3)}`,
    );
    await worker.terminate();
  });

  it('do not wait for the stream of an earlier worker whose memory they reuse', async () => {
    const first = await workerThat(`
      const event = addon.eventCreate(0, false);
      addon.allocate(stream, 160_000, false);
      for (let i = 0; i < 3000; i++) addon.eventRecord(event, stream);
      addon.release(words[0]);`);
    const second = `
      addon.allocate(stream, 160_000, false);
      addon.release(words[0]); // is merged with what the other worker left
      addon.allocate(stream, 160_000, false);
      const side = addon.streamCreate(0, 0, 0);
      addon.write(words[0], 0, new Float32Array(40_000), side);
      addon.synchronize(side);`;
    let answered = once(first, 'message');
    first.postMessage('go');
    await answered;
    await first.terminate();
    const next = await workerThat(second);
    answered = once(next, 'message', { signal: AbortSignal.timeout(5000) });
    next.postMessage('go');
    await answered;
    await next.terminate();
  }).timeout(20_000);

  it('leave no state behind that other threads would read', async () => {
    const before = addon.memoryStats(0);
    for (let i = 0; i < 3; i++) {
      // Large blocks, freed in order with a stream that is gone when the allocator looks at them
      // again.
      const worker = await workerThat(`
        addon.allocate(stream, 4 << 20, false);
        const handle = words[0];
        addon.write(handle, 0, new Uint8Array(4 << 20), stream);
        addon.release(handle);
        addon.allocate(stream, 4 << 20, false);`);
      const answered = once(worker, 'message');
      worker.postMessage('go');
      await answered;
      await worker.terminate();
      ones([2_000_000]).dispose();
      addon.emptyCache(0, 0);
    }
    const after = addon.memoryStats(0);
    assert.ok(
      after.liveBlocks <= before.liveBlocks,
      `${after.liveBlocks - before.liveBlocks} blocks`,
    );
    assert.ok(
      after.segments <= before.segments + 1,
      `${after.segments} segments, ${before.segments} before`,
    );
  });

  it('free their memory when they are terminated in the middle of work', async function () {
    this.timeout(60_000);
    const [count, bytes, rounds] = [250, 360_000, 3];
    const kernel = addon.kernelNames.indexOf('add');
    const n = bytes / 4;
    const body = `
      for (let i = 0; i < ${count}; i++) {
        addon.allocate(stream, ${bytes}, false);
        const handle = words[0];
        words.set([${kernel}, stream, 2, 1, 2, 0, 1e9, handle, 0, 0, 1, ${n}, 1, -1, 1, 0, handle, 0, 0, 1, ${n}, 1, 0, 1]);
        addon.submit(24);
      }`;
    const before = addon.memoryStats(0).reservedBytes;
    const resident = process.memoryUsage().rss;
    for (let round = 0; round < rounds; round++) {
      const workers = await Promise.all(Array.from({ length: 8 }, () => workerThat(body)));
      await Promise.all(
        workers.map(async (worker) => {
          const answered = once(worker, 'message');
          worker.postMessage('go');
          await answered;
          await worker.terminate();
        }),
      );
    }
    const held = addon.memoryStats(0).reservedBytes - before;
    assert.ok(held < 2 ** 26, `${held} bytes are still reserved`);
    const grown = (): number => process.memoryUsage().rss - resident;
    for (let i = 0; i < 50 && grown() > 3e8; i++) await sleep(100); // a thread of the addon unmaps
    assert.ok(grown() < 3e8, `${grown()} bytes more are resident`);
  });
});
