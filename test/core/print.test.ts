/** How tensors print where they are cut short: to the character as PyTorch does. */
import assert from 'node:assert/strict';
import { arange, zeros } from '../../lib/index.js';

describe('a large tensor', () => {
  it('shows the ends of a vector', () => {
    assert.equal(String(arange(1001)), 'tensor([   0,    1,    2,  ...,  998,  999, 1000])');
  });

  it('shows the ends of both dims of a matrix', () => {
    const row = '[0., 0., 0.,  ..., 0., 0., 0.]';
    const rows = [row, row, row, '...', row, row, row];
    assert.equal(String(zeros([40, 50])), `tensor([${rows.join(',\n        ')}])`);
  });

  it('shows whole rows that are short', () => {
    const rows = ['[0., 0.]', '[0., 0.]', '[0., 0.]', '...', '[0., 0.]', '[0., 0.]', '[0., 0.]'];
    assert.equal(String(zeros([2000, 2])), `tensor([${rows.join(',\n        ')}])`);
  });
});
