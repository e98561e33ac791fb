/** What is computed from the results of a failed command fails too, on whichever stream. */
import assert from 'node:assert/strict';
import { cuda, indexSelect, tensor } from '../../lib/index.js';
import { skipWithoutCuda } from '../skip.js';

describe('a failure on another stream', () => {
  before(function () {
    skipWithoutCuda(this);
  });

  it('reaches what reads its results', async () => {
    const side = new cuda.Stream();
    const table = tensor([1, 2, 3], { device: 'cuda' });
    const broken = cuda.stream(side, () => indexSelect(table, 0, tensor([7n], { device: 'cuda' })));
    await assert.rejects(broken.add(1).read());
  });
});
