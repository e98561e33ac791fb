/**
 * A list that is longer than the dims of any tensor is refused at its first wrong element: walking
 * a sparse array of 2**32 - 1 would take minutes.
 */
import assert from 'node:assert/strict';
import { ones, ShardwiseError, type Tensor } from '../../lib/index.js';

const MOST_READS = 100;

/** A sparse array that counts the reads of its elements. */
function endless(): number[] {
  let reads = 0;
  const count = (): void => {
    if (++reads > MOST_READS) throw new RangeError('the list is walked to its end');
  };
  return new Proxy(new Array<number>(2 ** 32 - 1), {
    get(list, key) {
      if (typeof key === 'string' && /^\d+$/.test(key)) count();
      return Reflect.get(list, key) as unknown;
    },
    has(list, key) {
      count();
      return Reflect.has(list, key);
    },
  });
}

const calls: Record<string, (t: Tensor, list: number[]) => unknown> = {
  permute: (t, list) => t.permute(list),
  expand: (t, list) => t.expand(list),
  view: (t, list) => t.view(list),
  reshape: (t, list) => t.reshape(list),
  repeat: (t, list) => t.repeat(list),
  tile: (t, list) => t.tile(list),
  squeeze: (t, list) => t.squeeze(list),
  flip: (t, list) => t.flip(list),
  roll: (t, list) => t.roll(list, list),
  rot90: (t, list) => t.rot90(1, list as never),
  movedim: (t, list) => t.movedim(list, list),
  unflatten: (t, list) => t.unflatten(0, list),
  sumToSize: (t, list) => t.sumToSize(list),
  newZeros: (t, list) => t.newZeros(list),
  norm: (t, list) => t.norm(2, list),
  ...Object.fromEntries(
    ['sum', 'mean', 'amax', 'amin', 'var', 'std', 'logsumexp'].map((name) => [
      name,
      (t: Tensor, list: number[]) => t[name as 'sum'](list),
    ]),
  ),
};

describe('a sparse array of 2**32 - 1 elements', () => {
  for (const [name, call] of Object.entries(calls)) {
    it(`is refused by ${name} without iterating over it`, () =>
      assert.throws(() => call(ones([2, 2]), endless()), ShardwiseError));
  }
});
