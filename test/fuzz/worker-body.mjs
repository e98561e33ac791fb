// What a worker of workers.ts does with an addon of its own: work on several streams, and an end in
// the middle of it. Plain JavaScript on the raw addon, so that a worker starts in milliseconds.
import { createRequire } from 'node:module';
import { workerData } from 'node:worker_threads';

const { root, end, steps, bytes, kernel } = workerData;
const addon = createRequire(import.meta.url)('node-gyp-build')(root);
const words = new Float64Array(addon.words);
const streams = [addon.defaultStream(0), addon.streamCreate(0, 0, 0)];
const event = addon.eventCreate(0, false);
const kept = [];

function storage(stream, withToken) {
  const token = addon.allocate(stream, bytes, withToken);
  kept.push(token);
  return words[0];
}

/** y = y + 1, large enough to go through the ring. */
function work(handle, stream) {
  const n = bytes / 4;
  words.set([
    kernel,
    stream,
    2,
    1,
    2,
    0,
    1e9,
    handle,
    0,
    0,
    1,
    n,
    1,
    -1,
    1,
    0,
    handle,
    0,
    0,
    1,
    n,
    1,
    0,
    1,
  ]);
  addon.submit(24);
}

for (let i = 0; i < steps; i++) {
  const [stream, other] = i % 2 ? streams : [streams[1], streams[0]];
  const handle = storage(stream, i % 3 === 0);
  work(handle, stream);
  addon.eventRecord(event, stream);
  addon.eventWait(event, other);
  work(handle, other);
  if (i % 4 === 0) addon.readAsync(handle, 0, new Uint8Array(64), other, () => {});
  if (i % 5 === 0) addon.whenDone(stream, () => {});
  if (i % 2 === 0) addon.release(handle);
  if (i % 7 === 0) addon.adopt(new ArrayBuffer(64), 0, 64, true);
}
if (end === 'exit') process.exit(0);
if (end === 'throw') throw new Error('an end on purpose');
if (end === 'loop') for (;;) work(storage(streams[0], true), streams[0]);
