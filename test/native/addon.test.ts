/**
 * The raw addon refuses what does not fit: it answers with an error code, whatever JavaScript hands
 * it.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import { addon } from '../../lib/runtime.js';
import { recordCommands } from '../fuzz/commands.js';
import {
  absent,
  FLOAT64,
  found,
  INT64,
  storage,
  stream,
  submit,
  view,
  words,
} from './raw-commands.js';

const code = (expected: string) => (error: NodeJS.ErrnoException) => {
  assert.equal(error.code, expected, error.message);
  return true;
};

const misfits: Record<string, () => void> = {
  'sizes of a pointwise op that differ': () =>
    submit('add', [view([8]), view([4])], [view([8])], [0, 1]),
  'a compute type that does not exist': () =>
    submit('add', [view([2]), view([2])], [view([2])], [7, 1]),
  'a missing operand': () => submit('add', [view([2])], [view([2])], [0, 1]),
  'a copy between different sizes': () => submit('copy', [view([100])], [view([4], { bytes: 16 })]),
  'a matrix product whose inner sizes differ': () =>
    submit('matmul', [view([1, 2, 3]), view([1, 4, 5]), absent], [view([1, 2, 5])], [1, 0]),
  'a matrix product of two dtypes': () =>
    submit(
      'matmul',
      [view([1, 2, 2], { dtype: 1 }), view([1, 2, 2]), absent],
      [view([1, 2, 2])],
      [1, 0],
    ),
  'more reduced dims than the input has': () =>
    submit('reduce_sum', [view([2, 3])], [view([1])], [3]),
  'an output that is too small for a reduction': () =>
    submit('reduce_sum', [view([64, 3])], [view([1], { bytes: 4 })], [1]),
  'more of the largest than there are': () =>
    submit('topk', [view([3])], [view([5]), view([5], { dtype: INT64 })], [5, 1]),
  'slices of another width': () =>
    submit('index_select', [view([1, 3, 4]), view([2], { dtype: INT64 })], [view([1, 2, 8])]),
  'fewer index tensors than announced': () =>
    submit('index_get', [view([3, 3]), view([2], { dtype: INT64 })], [view([2])], [2]),
  'rows of indices that are not 64 bits wide': () =>
    submit('nonzero_rows', found(64), [view([3, 1])], [64]),
  'tiles that end within a word': () =>
    submit('nonzero_rows', found(64), [view([3, 1], { dtype: INT64 })], [32]),
  'flags for fewer elements': () =>
    submit('nonzero_rows', found(65), [view([3, 1], { dtype: INT64 })], [128]),
  'starts of fewer tiles': () =>
    submit(
      'nonzero',
      [view([65])],
      [view([2], { dtype: INT64 }), view([2], { dtype: INT64 })],
      [64],
    ),
  'heads that do not divide': () =>
    submit(
      'attention',
      [view([1, 3, 2, 2]), view([1, 2, 2, 2]), view([1, 2, 2, 2]), absent],
      [view([1, 3, 2, 2]), view([1, 3, 2])],
      [1, 0, 0],
    ),
  'gradients of another size than the parameters': () =>
    submit('sgd_step', [view([1000]), view([1], { bytes: 4 }), absent], [], [1, 0.1]),
  'an index that reaches beyond what it gathers from': () =>
    submit('gather', [view([2, 3]), view([3, 2], { dtype: INT64 })], [view([3, 2])]),
  'a reduction of a scatter that does not exist': () =>
    submit('scatter', [view([2, 2], { dtype: INT64 }), view([2, 2])], [view([2, 2])], [5]),
  'values for fewer positions than index tensors name': () =>
    submit('index_put', [view([1]), view([2], { dtype: INT64 })], [view([3])], [1, 0]),
  'a log-sum-exp of integers': () =>
    submit('reduce_logsumexp', [view([2], { dtype: INT64 })], [view([1])], [1]),
  'a scale of a loss with two elements': () =>
    submit(
      'cross_entropy',
      [view([2, 3]), view([2], { dtype: INT64 }), absent, view([2])],
      [view([2]), view([2]), view([2, 3])],
      [-100, 0],
    ),
  'random numbers without an index view': () =>
    submit('random_uniform', [absent], [view([2])], [0, 0, 0, 0, 1]),
  'a triangle that is not dense': () =>
    submit('tri', [view([2, 2])], [view([2, 2], { strides: [1, 2] })], [0, 0]),
  'a list longer than the operands': () => submit('foreach_mul', [view([2])], [], [1e9, 2]),
  'statistics for fewer rows': () =>
    submit(
      'layer_norm',
      [view([8, 2]), absent, absent],
      [view([8, 2]), view([1]), view([1])],
      [1e-5],
    ),
  'targets for fewer rows': () =>
    submit(
      'cross_entropy',
      [view([8, 2]), view([1], { dtype: INT64 }), absent],
      [view([8]), view([8])],
      [-100, 0],
    ),
  'logits of classes beyond the last': () =>
    submit(
      'cross_entropy_statistics',
      [view([8, 2]), view([8], { dtype: INT64 }), absent],
      [view([8, 1], { dtype: FLOAT64 }), view([8], { dtype: FLOAT64 })],
      [-100, 0, 3, 4],
    ),
  'statistics of a loss that are not float64': () =>
    submit(
      'cross_entropy_statistics',
      [view([8, 2]), view([8], { dtype: INT64 }), absent],
      [view([8, 1]), view([8], { dtype: FLOAT64 })],
      [-100, 0, 2, 4],
    ),
  'an output that overlaps itself': () =>
    submit('fill', [], [view([1000, 1000], { strides: [0, 0] })], [1, 0]),
  'sizes beyond the address space': () => submit('fill', [], [view([2 ** 49, 0])], [1, 0]),
};

describe('the addon', () => {
  for (const [what, run] of Object.entries(misfits))
    it(`refuses ${what}`, () => assert.throws(run, code('SW_INVALID')));

  it('says which operands a kernel expects', () =>
    assert.throws(
      misfits['a matrix product whose inner sizes differ'] as () => void,
      /the kernel matmul, which expects \(a: T\[b, m, k\], b: T\[b, k, n\], addend\?: T\[b, m, n\]\) -> \(y: T\[b, m, n\]\)/,
    ));

  it('refuses a target that is not a class, also in the backward pass', () => {
    const target = view([1], { dtype: INT64 });
    addon.write(target.kind, 0, new BigInt64Array([123456789n]), stream);
    assert.throws(
      () =>
        submit(
          'cross_entropy_backward',
          [view([1]), view([1, 2]), view([1]), target, absent],
          [view([1, 2])],
          [-100, 0, 0, 2],
        ),
      code('SW_INDEX'),
    );
  });

  it('has a contract for every kernel that ops use', () => {
    const used = new Set(recordCommands().map(({ kernel }) => addon.kernelNames[kernel]));
    assert.deepEqual(
      addon.kernelNames.filter((name) => !used.has(name)),
      [],
    );
    for (const name of addon.kernelNames)
      assert.throws(() => submit(name, Array(20).fill(absent), []), code('SW_INVALID'));
  });

  it('checks the types of its arguments instead of trusting arrays, functions and numbers', () => {
    const handle = storage(64);
    const call = addon as unknown as Record<string, (...args: unknown[]) => void>;
    const calls: [string, ...unknown[]][] = [
      ['readAsync', handle, 0, new Uint8Array(4), stream, 'no function'],
      ['whenDone', stream],
      ['write', handle, 0, new DataView(new ArrayBuffer(4)), stream],
      ['write', handle, {}, new Uint8Array(4), stream],
      ['adopt', new ArrayBuffer(8), 'x', 8, false],
      ['adopt', new ArrayBuffer(8), 4, 2 ** 53, false],
      ['submit'],
      ['releaseMany', 2 ** 40],
    ];
    for (const [name, ...args] of calls)
      assert.throws(() => call[name]?.(...args), code('SW_INVALID'), name);
    addon.release(handle);
  });

  it('counts a storage with several tokens once', () => {
    const handle = storage(64);
    const before = addon.memoryStats(0).tokens;
    assert.ok(addon.makeToken(handle));
    assert.ok(addon.makeToken(handle));
    assert.equal(addon.memoryStats(0).tokens, before + 1);
    addon.release(handle);
    assert.equal(addon.memoryStats(0).tokens, before);
  });

  it('keeps a storage without tokens while a graph has saved it', () => {
    const { liveBlocks } = addon.memoryStats(0);
    const handle = storage(64);
    assert.ok(addon.savedToken(handle));
    assert.equal(addon.setSaved(handle, 1), false);
    assert.equal(addon.memoryStats(0).liveBlocks, liveBlocks + 1);
    assert.equal(addon.setSaved(handle, 0), true);
    assert.equal(addon.setSaved(handle, 0), false);
    assert.equal(addon.memoryStats(0).liveBlocks, liveBlocks);
    assert.throws(() => addon.savedToken(handle), code('SW_CLOSED'));
    const other = storage(64);
    const token = addon.makeToken(other);
    addon.savedToken(other);
    assert.equal(addon.setSaved(other, 0), false, 'it has a token');
    assert.ok(token);
    addon.release(other);
  });

  it('calls no function of a library except its version functions', () => {
    const probed = addon.probeLibrary('libc.so.6', 'abort');
    assert.equal('version' in probed && probed.version, 0);
  });

  it('makes every callback, even after one that throws', () => {
    const script = `
      const addon = require('node-gyp-build')(process.cwd());
      const stream = addon.defaultStream(0);
      const seen = [];
      process.on('uncaughtException', (error) => seen.push(error.message));
      addon.whenDone(stream, () => { throw new Error('first'); });
      addon.whenDone(stream, () => seen.push('second'));
      addon.synchronize(stream);
      process.on('exit', () => console.log(seen.join()));`;
    const { stdout, stderr } = spawnSync(process.execPath, ['-e', script], { encoding: 'utf8' });
    assert.equal(stdout.trim(), 'first,second', stderr);
  });

  it('reuses memory of another stream without waiting, however few commands that stream has run', async () => {
    const other = addon.streamCreate(0, 0, 0);
    const handle = storage(32);
    const add = (to: number, cost: number): void => {
      words.set([
        addon.kernelNames.indexOf('add'),
        to,
        2,
        1,
        2,
        0,
        cost,
        handle,
        0,
        0,
        1,
        8,
        1,
        -1,
        1,
        0,
        handle,
        0,
        0,
        1,
        8,
        1,
        0,
        1,
      ]);
      addon.submit(24);
    };
    for (let i = 0; i < 50; i++) add(stream, 1e9);
    addon.synchronize(stream);
    add(other, 1); // so little that it runs here
    add(stream, 1e9);
    const done = new Promise<string>((resolve) =>
      addon.whenDone(stream, (error) => resolve(error === null ? 'done' : String(error))),
    );
    assert.equal(await Promise.race([done, sleep(5000, 'waits')]), 'done');
    addon.release(handle);
  });

  it('keeps memory that several streams use until the last of them is done', () => {
    const other = addon.streamCreate(0, 0, 0);
    const n = 2 ** 20;
    const expected = Float32Array.from({ length: 8 }, () => 3);
    for (let round = 0; round < 30; round++) {
      const handle = storage(4 * n);
      for (const each of [stream, other, stream]) {
        words.set([
          addon.kernelNames.indexOf('add'),
          each,
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
      const seen = new Float32Array(8);
      if (round % 2) addon.readSync(handle, 0, seen, stream);
      addon.release(handle);
      addon.emptyCache(0, 0);
      if (round % 2) assert.deepEqual(seen, expected);
    }
    addon.synchronize(stream);
    addon.synchronize(other);
  });
});
