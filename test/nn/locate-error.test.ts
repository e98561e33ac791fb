/** An error inside a model names the module that threw it. */
import assert from 'node:assert/strict';
import { nn, ones, type ShardwiseError } from '../../lib/index.js';

describe('an error in a model', () => {
  const block = (width: number): nn.Sequential =>
    new nn.Sequential({ up: new nn.Linear(4, width), down: new nn.Linear(8, 4) });

  it('names the innermost module by its path from the outermost', () => {
    const net = new nn.Sequential(block(8), block(7));
    assert.throws(
      () => net(ones([2, 4])),
      (error: ShardwiseError) =>
        error.modulePath === '1.down' &&
        /in the module Sequential at 1\.down \(Linear\)/.test(error.message),
    );
  });

  it('names a module that is called alone, and is unchanged if caught inside', () => {
    const linear = new nn.Linear(4, 4);
    assert.throws(() => linear(ones([2, 3])), /in the module Linear$/);
    assert.throws(
      () => new nn.Sequential(linear)(ones([2, 3])),
      (error: ShardwiseError) => (error.message.match(/in the module/g) ?? []).length === 1,
    );
  });
});
