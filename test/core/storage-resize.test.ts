/** `untypedStorage().resize_` keeps or frees bytes in the order of the stream, without blocking. */
import assert from 'node:assert/strict';
import { cpu } from '../../lib/core/device.js';
import { streamOf, writer } from '../../lib/eager/submit.js';
import {
  ArgumentError,
  cuda,
  FreedError,
  memory,
  ones,
  rand,
  tensor,
  zeros,
} from '../../lib/index.js';

const allocated = (): number => memory.stats().allocatedBytes;

describe('resizing a storage', () => {
  it('to 0 bytes does not wait for work that still reads it, and that work reads the old values', () => {
    const n = 1024;
    const expected = n * 0.5;
    const halves = zeros([n, n]).fill_(0.5);
    let busy = 0;
    for (let attempt = 0; attempt < 5; attempt++) {
      const x = ones([n, n]);
      const product = x.mm(halves);
      x.untypedStorage().resize_(0);
      if (!writer.addon.streamQuery(streamOf(cpu))) busy++;
      const reuse = zeros([n, n]); // takes the block at once, in order behind the product
      assert.equal(product.amin().item(), expected);
      assert.equal(reuse.amax().item(), 0);
      for (const t of [x, product, reuse]) t.dispose();
    }
    assert.ok(busy > 0, 'the stream was idle after every resize_');
  });

  it('on another stream than that of its creation keeps the bytes, and the old memory for pending reads', () => {
    const n = 1024;
    const side = new cuda.Stream({ device: 'cpu' });
    const halves = zeros([n, n]).fill_(0.5);
    const x = ones([n, n]);
    const product = x.mm(halves);
    cuda.stream(side, () => x.untypedStorage().resize_(8 * n * n));
    const reuse = zeros([n, n]);
    cuda.stream(side, () => x.untypedStorage().resize_(4 * n * n));
    assert.deepEqual(
      [product.amin().item(), product.amax().item(), x.sum().item(), reuse.amax().item()],
      [n * 0.5, n * 0.5, n * n, 0],
    );
    for (const t of [x, product, reuse]) t.dispose();
  });

  it('keeps the bytes that fit, to the byte', () => {
    memory.collect();
    const before = allocated();
    const x = tensor([1, 2, 3, 4]);
    const storage = x.untypedStorage();
    storage.resize_(8000);
    assert.deepEqual([x.tolist(), storage.size()], [[1, 2, 3, 4], 8000]);
    assert.equal(allocated() - before, 8000);
    storage.resize_(8);
    assert.deepEqual(x.narrow(0, 0, 2).tolist(), [1, 2]);
    assert.equal(allocated() - before, 64);
    storage.resize_(0);
    assert.equal(allocated(), before);
    x.dispose();
    assert.equal(allocated(), before);
  });

  it('below the range of a tensor makes reading it an error that says how many bytes are missing', () => {
    const x = rand([4, 4]);
    x.untypedStorage().resize_(32);
    for (const read of [() => x.add(1), () => x.tolist(), () => x.select(0, 3).sum()]) {
      assert.throws(
        read,
        (error: FreedError) =>
          error instanceof FreedError && /resized to 32 bytes, 64 are needed/.test(error.message),
      );
    }
    assert.equal(x.select(0, 1).numel(), 4);
    assert.doesNotThrow(() => x.select(0, 1).tolist());
    x.untypedStorage().resize_(64);
    x.fill_(2);
    assert.equal(x.sum().item(), 32);
  });

  it('to a negative size is refused', () => {
    const x = rand([4]);
    for (const size of [-1, 1.5, Number.NaN])
      assert.throws(() => x.untypedStorage().resize_(size), ArgumentError);
    assert.equal(x.untypedStorage().size(), 16);
  });
});
