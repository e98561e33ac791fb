/** Losses of elements warn of a target in another shape. */
import assert from 'node:assert/strict';
import { compile, nn, ones, ShapeError, type Tensor } from '../../lib/index.js';

const { functional: F } = nn;

/** A line for each, because a line is warned once. */
const losses: Record<string, (x: Tensor, y: Tensor) => Tensor> = {
  mseLoss: (x, y) => F.mseLoss(x, y),
  l1Loss: (x, y) => F.l1Loss(x, y),
  smoothL1Loss: (x, y) => F.smoothL1Loss(x, y),
  huberLoss: (x, y) => F.huberLoss(x, y),
};

/** The warnings of calls that Node has given out. */
async function warningsOf(fn: () => unknown): Promise<Error[]> {
  const warnings: Error[] = [];
  const record = (warning: Error): void => {
    if (warning.name === 'BroadcastWarning') warnings.push(warning);
  };
  process.on('warning', record);
  fn();
  await new Promise(setImmediate);
  process.off('warning', record);
  return warnings;
}

describe('a loss of an input and a target in other shapes', () => {
  for (const [name, loss] of Object.entries(losses)) {
    it(`warns with both shapes and the line of the program: ${name}`, async () => {
      const [warning] = await warningsOf(() => loss(ones([4, 1]), ones([4])));
      assert.match(
        warning?.message ?? '',
        new RegExp(
          `^${name}: expected a target in the shape of the input, \\[4, 1\\], got \\[4\\]; both ` +
            'broadcast to \\[4, 4\\]\\. Use target\\.reshape\\(input\\.shape\\).*' +
            'broadcast-warning\\.test\\.[jt]s:\\d+:\\d+',
        ),
      );
    });
  }

  it('warns once at each place, however often it is reached', async () => {
    const criterion = new nn.MSELoss();
    const warnings = await warningsOf(() => {
      for (let step = 0; step < 3; step++) criterion(ones([4, 1]), ones([4]));
      criterion(ones([4, 1]), ones([4]));
    });
    assert.equal(warnings.length, 2);
  });

  it('warns where it is compiled, and gives the same loss', async () => {
    const loss = (x: Tensor, y: Tensor): Tensor => nn.functional.mseLoss(x, y);
    const [x, y] = [ones([4, 1]).mul(3), ones([4])];
    const compiled = compile(loss, { fullgraph: true });
    assert.equal((await warningsOf(() => compiled(x, y))).length, 1);
    assert.equal(compiled(x, y).item(), 4);
  });

  it('is silent for equal shapes, and throws if they do not broadcast', async () => {
    const warnings = await warningsOf(() => {
      for (const loss of Object.values(losses)) {
        loss(ones([4, 1]), ones([4, 1]));
        assert.throws(() => loss(ones([4]), ones([3])), ShapeError);
      }
    });
    assert.deepEqual(warnings, []);
  });
});
