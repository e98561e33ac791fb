/** Memory that passes from one stream to another is in order, whoever had it before. */
import assert from 'node:assert/strict';
import { cuda, empty, ones, zeros } from '../../lib/index.js';

describe('a tensor whose first use is on another stream than the one it was made on', () => {
  it('waits for what still reads the memory that it got', () => {
    const n = 1024;
    const side = new cuda.Stream({ device: 'cpu' });
    const halves = zeros([n, n]).fill_(0.5);
    for (let attempt = 0; attempt < 3; attempt++) {
      const x = ones([n, n]);
      const product = x.mm(halves); // takes milliseconds
      x.dispose();
      const y = empty([n, n]); // the memory of x
      cuda.stream(side, () => y.fill_(7));
      assert.deepEqual([product.amin().item(), product.amax().item()], [n * 0.5, n * 0.5]);
      assert.equal(y.amin().item(), 7);
      for (const t of [product, y]) t.dispose();
    }
  });
});
