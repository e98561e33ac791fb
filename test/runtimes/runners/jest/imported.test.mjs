import { ones, Tensor } from 'shardwise';
import { library, trains } from '../program.mjs';

test('is imported', trains);
test('is one library', () => {
  expect(library.Tensor).toBe(Tensor);
  expect(ones([2]).add(1).tolist()).toEqual([2, 2]);
});
