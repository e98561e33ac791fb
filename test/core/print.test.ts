/** Large tensors print summarised, to the character as in PyTorch. */
import assert from 'node:assert/strict';
import { arange, zeros } from '../../lib/index.js';

describe('a large tensor', () => {
  it('prints the first and last elements of a vector', () => {
    assert.equal(String(arange(1001)), 'tensor([   0,    1,    2,  ...,  998,  999, 1000])');
  });

  it('prints the first and last rows and columns of a matrix', () => {
    const row = '[0., 0., 0.,  ..., 0., 0., 0.]';
    const rows = [row, row, row, '...', row, row, row];
    assert.equal(String(zeros([40, 50])), `tensor([${rows.join(',\n        ')}])`);
  });

  it('prints short rows completely', () => {
    const rows = ['[0., 0.]', '[0., 0.]', '[0., 0.]', '...', '[0., 0.]', '[0., 0.]', '[0., 0.]'];
    assert.equal(String(zeros([2000, 2])), `tensor([${rows.join(',\n        ')}])`);
  });
});
