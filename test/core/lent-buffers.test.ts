/** Tensors over memory that JavaScript owns, when JavaScript does something else with it. */
import assert from 'node:assert/strict';
import { asTensor, FreedError, fromBlob, type ShardwiseError } from '../../lib/index.js';

type Resizable = new (bytes: number, options: { maxByteLength: number }) => ArrayBuffer & { resize(bytes: number): void };

describe('a tensor over an ArrayBuffer', () => {
  it('is refused where the buffer may lose its memory, or is not one', () => {
    const resizable = new (ArrayBuffer as unknown as Resizable)(64, { maxByteLength: 128 });
    assert.throws(() => fromBlob(new Float32Array(resizable)), /resizable/);
    assert.throws(() => fromBlob(new Float32Array(new SharedArrayBuffer(64))), /SharedArrayBuffer/);
    const gone = new Float32Array(16);
    structuredClone(gone.buffer, { transfer: [gone.buffer] });
    assert.throws(() => fromBlob(gone), /detached/);
  });

  it('is a copy where asTensor is asked for one over a resizable buffer', () => {
    const resizable = new (ArrayBuffer as unknown as Resizable)(8, { maxByteLength: 128 });
    const t = asTensor(new Float32Array(resizable).fill(3));
    resizable.resize(0);
    assert.deepEqual(t.tolist(), [3, 3]);
  });

  it('says so when the buffer was transferred away', async () => {
    const array = new Float32Array([1, 2, 3]);
    const t = fromBlob(array);
    assert.deepEqual(t.add(1).tolist(), [2, 3, 4]);
    structuredClone(array.buffer, { transfer: [array.buffer] });
    const refused = (error: ShardwiseError): boolean => error instanceof FreedError && /transferred/.test(error.message);
    assert.throws(() => t.add(1), refused);
    assert.throws(() => t.tolist(), refused);
    await assert.rejects(async () => t.read(), refused);
    assert.throws(() => t.mul_(2), refused);
  });
});
