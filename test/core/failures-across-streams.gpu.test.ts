/** Work that reads the results of a failed command fails too, on any stream. */
import assert from 'node:assert/strict';
import { cuda, indexSelect, tensor } from '../../lib/index.js';
import { skipWithoutCuda } from '../skip.js';

describe('a failure on another stream', () => {
  before(function () {
    skipWithoutCuda(this);
  });

  it('reaches the streams that read the results', async () => {
    const side = new cuda.Stream();
    const table = tensor([1, 2, 3], { device: 'cuda' });
    const broken = cuda.stream(side, () => indexSelect(table, 0, tensor([7n], { device: 'cuda' })));
    await assert.rejects(broken.add(1).read());
  });
});
