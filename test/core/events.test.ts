/** Events, and how they report failures of earlier work. */
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  ArgumentError,
  cuda,
  DeviceError,
  IndexError,
  KernelError,
  ones,
} from '../../lib/index.js';
import { addon } from '../../lib/runtime.js';
import { failLater, newStream, timed } from './on-streams.js';

const tellsOf =
  (index: number) =>
  (error: unknown): boolean =>
    error instanceof IndexError && error.message.includes(`index ${index} `);

describe('events', () => {
  it('are freed by the thread that created them', () => {
    const [a, b] = [newStream(), newStream()];
    let alive = 0;
    const { eventCreate, eventDestroy } = addon;
    addon.eventCreate = (...args) => (alive++, eventCreate(...args));
    addon.eventDestroy = (...args) => (alive--, eventDestroy(...args));
    try {
      for (let i = 0; i < 10; i++) a.waitStream(b);
      assert.equal(alive, 0);
    } finally {
      Object.assign(addon, { eventCreate, eventDestroy });
    }
  });

  it('stay alive when another id is destroyed', () => {
    const id = addon.eventCreate(0, false);
    addon.eventDestroy(id + 2 ** 32);
    assert.equal(addon.eventQuery(id), true);
    addon.eventDestroy(id);
    assert.throws(() => addon.eventQuery(id), /gone/);
  });
});

describe('an event after work that failed', () => {
  it('throws from waits and from elapsed times until it is recorded again', () => {
    const s = newStream();
    const [begin, end] = [timed(), timed()];
    begin.record(s);
    const lost = failLater(s);
    end.record(s);
    assert.throws(() => begin.elapsedTime(end), tellsOf(99));
    assert.throws(() => end.synchronize(), tellsOf(99));
    begin.synchronize();
    s.synchronize(); // has been told
    assert.throws(() => lost.item(), KernelError);
    end.record(s);
    end.synchronize();
    assert.ok(begin.elapsedTime(end) >= 0);
  });

  it('throws that failure and not a later one', async () => {
    const s = newStream();
    const end = timed();
    failLater(s);
    end.record(s);
    assert.throws(() => s.synchronize(), tellsOf(99));
    failLater(s, 77);
    await s.done().catch(() => {});
    failLater(s, 55);
    await sleep(50);
    assert.throws(() => end.synchronize(), tellsOf(99));
    assert.throws(() => s.synchronize(), tellsOf(55));
  });

  it('leaves the stream usable for its next owner', () => {
    const s = newStream();
    const end = timed();
    failLater(s);
    end.record(s);
    assert.throws(() => s.synchronize(), tellsOf(99));
    s.dispose();
    const next = newStream();
    failLater(next, 55);
    assert.throws(() => end.synchronize(), tellsOf(99));
    assert.throws(() => next.synchronize(), tellsOf(55));
  });

  it('does not wait for later work', async () => {
    const [s, other] = [newStream(), newStream()];
    const [end, late] = [timed(), timed()];
    const x = ones([1500, 1500]);
    failLater(s);
    end.record(s);
    cuda.stream(other, () => {
      for (let i = 0; i < 30; i++) x.mm(x).dispose();
    });
    late.record(other);
    s.waitEvent(late);
    assert.throws(() => end.synchronize(), tellsOf(99));
    assert.equal(late.query(), false);
    await other.done();
    x.dispose();
  });

  it('passes the failure to a stream that waits for it', () => {
    const [s, other] = [newStream(), newStream()];
    const [middle, end] = [timed(), timed()];
    failLater(s);
    middle.record(s);
    other.waitEvent(middle);
    end.record(other);
    assert.throws(() => end.synchronize(), tellsOf(99));
    other.synchronize(); // has been told
    s.synchronize();
  });
});

describe('an event that is recorded without naming a stream', () => {
  it('is recorded on the stream of the innermost cuda.stream', async () => {
    const [outer, s] = [newStream(), newStream()];
    const end = timed();
    const x = ones([1500, 1500]);
    cuda.stream(outer, () => {
      cuda.stream(s, () => {
        for (let i = 0; i < 5; i++) x.mm(x).dispose();
        end.record();
      });
    });
    assert.equal(end.query(), false);
    await s.done();
    assert.equal(end.query(), true);
    const other = timed();
    cuda.stream(outer, () => other.record());
    other.synchronize();
    x.dispose();
  });
});

describe('the time between events', () => {
  it('is refused if one event was created without enableTiming', () => {
    const s = newStream();
    const [begin, end] = [timed(), new cuda.Event()];
    begin.record(s);
    end.record(s);
    assert.throws(() => begin.elapsedTime(end), ArgumentError);
    assert.throws(() => end.elapsedTime(begin), /enableTiming/);
  });

  it('is refused if one event was not recorded', () => {
    const [begin, end] = [timed(), timed()];
    assert.throws(() => begin.elapsedTime(end), DeviceError);
    begin.record(newStream());
    assert.throws(() => begin.elapsedTime(end), DeviceError);
  });
});
