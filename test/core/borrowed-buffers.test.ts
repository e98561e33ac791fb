/** Tensors over JavaScript memory that is written or transferred meanwhile. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { asTensor, FreedError, fromBlob, ones, type ShardwiseError } from '../../lib/index.js';
import { programArguments } from '../run-program.js';

type Resizable = new (
  bytes: number,
  options: { maxByteLength: number },
) => ArrayBuffer & { resize(bytes: number): void };

describe('a tensor over an ArrayBuffer', () => {
  it('is refused for resizable, shared and detached buffers', () => {
    const resizable = new (ArrayBuffer as unknown as Resizable)(64, { maxByteLength: 128 });
    assert.throws(() => fromBlob(new Float32Array(resizable)), /resizable/);
    assert.throws(() => fromBlob(new Float32Array(new SharedArrayBuffer(64))), /SharedArrayBuffer/);
    const gone = new Float32Array(16);
    structuredClone(gone.buffer, { transfer: [gone.buffer] });
    assert.throws(() => fromBlob(gone), /detached/);
  });

  it('is refused for a resizable buffer whose property `resizable` is false', () => {
    const resizable = new (ArrayBuffer as unknown as Resizable)(64, { maxByteLength: 128 });
    Object.defineProperty(resizable, 'resizable', { value: false });
    assert.throws(() => fromBlob(new Float32Array(resizable)), /resizable/);
    assert.deepEqual(
      asTensor(new Float32Array(resizable).fill(2)).mul(2).tolist(),
      Array(16).fill(4),
    );
  });

  /** A process of its own: what went wrong here was a use of memory that had been freed. */
  function whenItGoes(how: string, what: string): unknown {
    const program = programArguments('core/programs/borrowed-memory');
    return JSON.parse(
      execFileSync(process.execPath, ['--expose-gc', ...program, how, what], { encoding: 'utf8' }),
    );
  }
  const results = {
    read: [4, 4, 4, 4],
    written: 'written',
    copied: 3,
    fetched: true,
    filled: 'written',
  };
  for (const [how, whats] of [
    ['transferred', ['read', 'written', 'copied', 'fetched', 'filled']],
    ['posted', ['read', 'written']],
  ] as const) {
    for (const what of whats) {
      const result = results[what];
      it(`has its old values when it is ${what} and its buffer is ${how} while work is pending`, () => {
        assert.deepEqual(whenItGoes(how, what), { result, busy: 8, takers: 4 });
      });
    }
  }
  it('is refused for a disguised resizable buffer before the buffer is resized', () =>
    assert.deepEqual(whenItGoes('resized', 'read'), { error: 'ERR_ARGUMENT' }));

  it('has the values of an in-place op as soon as the op returns', () => {
    const x = ones([600, 600]);
    const busy = x.matmul(x);
    const array = new Float32Array(100_000);
    const t = fromBlob(array);
    t.add_(busy.mean());
    assert.ok(array.every((value) => value === 600));
  });

  it('passes an op the values at the time of the call, whatever is written to the array later', () => {
    const x = ones([600, 600]);
    const busy = x.matmul(x);
    const array = new Float32Array(100_000).fill(1);
    const sum = fromBlob(array).add(busy.mean());
    array.fill(7);
    assert.equal(sum.max().item(), 601);
  });

  it('is a copy if asTensor gets a resizable buffer', () => {
    const resizable = new (ArrayBuffer as unknown as Resizable)(8, { maxByteLength: 128 });
    const t = asTensor(new Float32Array(resizable).fill(3));
    resizable.resize(0);
    assert.deepEqual(t.tolist(), [3, 3]);
  });

  it('throws an error that names the transfer of its buffer', async () => {
    const array = new Float32Array([1, 2, 3]);
    const t = fromBlob(array);
    assert.deepEqual(t.add(1).tolist(), [2, 3, 4]);
    structuredClone(array.buffer, { transfer: [array.buffer] });
    const refused = (error: ShardwiseError): boolean =>
      error instanceof FreedError && /transferred/.test(error.message);
    assert.throws(() => t.add(1), refused);
    assert.throws(() => t.tolist(), refused);
    await assert.rejects(async () => t.read(), refused);
    assert.throws(() => t.mul_(2), refused);
  });
});
