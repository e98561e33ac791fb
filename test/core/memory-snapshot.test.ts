/** `memory.snapshot`, and the recorded origin of each storage. */
import assert from 'node:assert/strict';
import { numRecorded } from '../../lib/eager/allocation-history.js';
import {
  cat,
  float64,
  fromBlob,
  memory,
  ones,
  scope,
  type Tensor,
  tensor,
  zeros,
} from '../../lib/index.js';

/** The only storage of a size that nothing else in these tests has. */
function storageOf({ nbytes }: Tensor): memory.LiveStorage {
  const found = memory.snapshot().storages.filter((s) => s.bytes === nbytes);
  assert.equal(found.length, 1, `${found.length} storages have ${nbytes} bytes`);
  return found[0] as memory.LiveStorage;
}

describe('memory.snapshot', () => {
  before(() => memory.collect());
  afterEach(() => memory.recordHistory(false));

  it('lists live storages, groups, segments and statistics of a device', () => {
    const held = [zeros([7919]), zeros([7919]), zeros([7919])];
    const { device, recording, stats, segments, storages, holders } = memory.snapshot('cpu');
    assert.deepEqual([device, recording], ['cpu', false]);
    assert.equal(storages.filter((s) => s.bytes === 4 * 7919).length, 3);
    assert.deepEqual(
      holders.find((h) => h.bytesEach === 4 * 7919),
      {
        bytes: 12 * 7919,
        count: 3,
        bytesEach: 4 * 7919,
        op: null,
        dtype: null,
        shape: null,
        memory: 'allocator',
      },
    );
    assert.equal(
      segments.reduce((sum, s) => sum + s.bytes, 0),
      stats.reservedBytes,
    );
    for (const t of held) t.dispose();
    assert.equal(memory.snapshot().storages.filter((s) => s.bytes === 4 * 7919).length, 0);
  });

  it('has op, shape and dtype of storages that were allocated while recording', () => {
    const before = zeros([10_007]);
    memory.recordHistory();
    const made = ones([13, 1013], { dtype: float64 });
    const sum = made.sum(1);
    const values = tensor(new Float32Array(10_037));
    const joined = cat([before, values.select(0, 0).reshape([1])]);
    assert.equal(storageOf(before).origin, null);
    assert.deepEqual(storageOf(made).origin, { op: 'full', dtype: 'float64', shape: [13, 1013] });
    assert.equal(storageOf(values).origin?.op, 'tensor');
    assert.deepEqual(storageOf(joined).origin, { op: 'cat', dtype: 'float32', shape: [10_008] });
    assert.ok(memory.snapshot().holders.some((h) => h.op === 'sum' && h.shape?.[0] === 13));
    memory.recordHistory(false);
    assert.equal(storageOf(made).origin, null);
    for (const t of [before, made, sum, values, joined]) t.dispose();
  });

  it('does not count an in-place change as an allocation', () => {
    const t = zeros([10_009]);
    memory.recordHistory();
    t.add_(1);
    assert.equal(storageOf(t).origin, null);
    t.dispose();
  });

  it('distinguishes memory of ArrayBuffers from the allocator', () => {
    memory.recordHistory();
    const t = fromBlob(new Float32Array(10_039));
    assert.deepEqual(storageOf(t), {
      bytes: 4 * 10_039,
      memory: 'arrayBuffer',
      origin: { op: 'fromBlob', dtype: 'float32', shape: [10_039] },
    });
    t.dispose();
  });

  it('drops freed storages', () => {
    memory.recordHistory();
    for (let step = 0; step < 200; step++)
      scope(() => Array.from({ length: 100 }, () => zeros([3])).length);
    assert.ok(numRecorded() < 10_000, String(numRecorded()));
    const t = zeros([10_061]);
    assert.equal(storageOf(t).origin?.op, 'full');
    t.dispose();
  });
});
