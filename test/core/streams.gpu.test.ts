/** Memory that passes from the CPU's stream to a GPU's is in order, whoever had it before. */
import assert from 'node:assert/strict';
import { cuda, full, ones, zeros } from '../../lib/index.js';
import { skipWithoutCuda } from '../skip.js';

describe('memory that passes between streams, CUDA', () => {
  before(function () {
    skipWithoutCuda(this);
  });

  it('takes a copy from the GPU when what still reads it on the CPU is done', () => {
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
});
