import { ones } from 'shardwise';

test('an imported function computes', () => {
  expect(ones([2]).add(1).tolist()).toEqual([2, 2]);
});
