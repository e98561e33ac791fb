/** Memory that is used on streams of the CPU and of a GPU is reused in order. */
import assert from 'node:assert/strict';
import { cuda, device, empty, full, memory, ones, zeros } from '../../lib/index.js';
import { skipWithoutCuda } from '../skip.js';

describe('memory that is used on several CUDA streams', () => {
  before(function () {
    skipWithoutCuda(this);
  });

  it('is written by a copy from the GPU only after the CPU has read it', () => {
    const n = 1024;
    const halves = zeros([n, n]).fill_(0.5);
    const onGpu = full([n, n], 7, { device: 'cuda' });
    for (const nonBlocking of [false, true]) {
      const x = ones([n, n]);
      const product = x.mm(halves); // takes milliseconds on the CPU
      x.dispose();
      const landed = onGpu.to('cpu', { nonBlocking }); // without nonBlocking: in the memory of x
      assert.deepEqual([product.amin().item(), product.amax().item()], [n * 0.5, n * 0.5]);
      assert.equal(landed.amin().item(), 7);
      for (const t of [product, landed]) t.dispose();
    }
  });

  it('keeps its values when it is resized on another stream', () => {
    const n = 1024;
    const side = new cuda.Stream();
    const x = ones([n, n], { device: 'cuda' });
    const product = x.mm(x);
    cuda.stream(side, () => x.untypedStorage().resize_(8 * n * n));
    const reuse = zeros([n, n], { device: 'cuda' });
    assert.deepEqual([product.amin().item(), x.sum().item(), reuse.amax().item()], [n, n * n, 0]);
  });

  it('makes a reader wait for the last use of its tensor, and not for later work of that stream', () => {
    const side = new cuda.Stream();
    const large = ones([4096, 4096], { device: 'cuda' });
    // the first launch of a kernel loads it, which waits for the device
    for (const t of [
      large.mm(large),
      full([4], 3, { device: 'cuda' }).add(large.select(0, 0).narrow(0, 0, 4)),
    ])
      t.dispose();
    cuda.synchronize();
    const weight = cuda.stream(side, () => full([4], 3, { device: 'cuda' }));
    const ahead = ones([4], { device: 'cuda' }); // the host turns to the other stream and back
    cuda.stream(side, () => {
      for (let i = 0; i < 200; i++) large.mm(large).dispose(); // takes hundreds of milliseconds
    });
    assert.deepEqual(weight.add(ahead).tolist(), [4, 4, 4, 4]);
    assert.equal(side.query(), false);
    cuda.synchronize();
  });

  it('is reused at once on the stream that used it last, however far the host is ahead', () => {
    const [side, gpu] = [new cuda.Stream(), device('cuda')];
    const [bytes, layers] = [2 ** 26, 24];
    cuda.synchronize();
    memory.emptyCache(gpu);
    const before = memory.stats(gpu).reservedBytes;
    const weight = empty([bytes / 4], { device: 'cuda' });
    const sums = Array.from({ length: layers }, (_, layer) => {
      weight.untypedStorage().resize_(bytes);
      cuda.stream(side, () => weight.fill_(layer));
      const sum = weight.amax();
      weight.untypedStorage().resize_(0);
      return sum;
    });
    assert.ok(memory.stats(gpu).reservedBytes - before <= 6 * bytes);
    assert.deepEqual(
      sums.map((sum) => sum.item()),
      sums.map((_, layer) => layer),
    );
  });

  it('comes back as soon as its own stream waits for its last use elsewhere, however far the host is ahead', () => {
    const [side, gpu] = [new cuda.Stream(), device('cuda')];
    const [bytes, layers] = [2 ** 26, 24];
    const large = ones([8192, 8192], { device: 'cuda' });
    cuda.synchronize();
    memory.emptyCache(gpu);
    const before = memory.stats(gpu).reservedBytes;
    for (let i = 0; i < 20; i++) large.mm(large).dispose(); // takes hundreds of milliseconds
    const sums = Array.from({ length: layers }, (_, layer) => {
      const x = full([bytes / 4], layer, { device: 'cuda' });
      const largest = cuda.stream(side, () => x.amax());
      if (layer % 2 === 0) x.dispose();
      const next = largest.add(1); // waits for the other stream
      if (layer % 2 === 1) x.dispose();
      return next;
    });
    assert.ok(memory.stats(gpu).reservedBytes - before <= 2 ** 28 + 4 * bytes);
    assert.deepEqual(
      sums.map((sum) => sum.item()),
      sums.map((_, layer) => layer + 1),
    );
  });
});
