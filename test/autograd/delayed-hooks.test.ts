/** `delayPostAccumulateGradHooks`: hooks of leaves that wait for a gradient that is reduced later. */
import assert from 'node:assert/strict';
import { compiledAutograd } from '../../lib/compile/index.js';
import {
  ArgumentError,
  AutogradError,
  autograd,
  compile,
  ones,
  type Tensor,
} from '../../lib/index.js';

describe('delayed post-accumulate hooks', () => {
  const make = (): { leaf: Tensor; seen: string[] } => {
    const leaf = ones([2], { requiresGrad: true });
    const seen: string[] = [];
    const arrived = autograd.opaqueHook(() => void seen.push('arrived'), [seen]);
    autograd.delayPostAccumulateGradHooks(leaf, arrived);
    leaf.registerPostAccumulateGradHook(() => void seen.push('first'));
    leaf.registerPostAccumulateGradHook(() => void seen.push('second'));
    return { leaf, seen };
  };

  it('wait until they are run, in the order in which they were registered', () => {
    const { leaf, seen } = make();
    leaf.sum().backward();
    assert.deepEqual(seen, ['arrived']);
    autograd.runPostAccumulateGradHooks(leaf);
    assert.deepEqual(seen, ['arrived', 'first', 'second']);
  });

  it('run in backward again when null takes the function away', () => {
    const { leaf, seen } = make();
    autograd.delayPostAccumulateGradHooks(leaf, null);
    leaf.sum().backward();
    assert.deepEqual(seen, ['first', 'second']);
  });

  it('wait in captured backward passes, too, and may be others at each', () => {
    const { leaf, seen } = make();
    const pass = (): void =>
      compiledAutograd.enable(
        (graph) => compile(graph),
        () => leaf.mul(2).sum().backward(),
      );
    pass();
    leaf.registerPostAccumulateGradHook(() => void seen.push('third'));
    pass();
    assert.deepEqual(seen, ['arrived', 'arrived']);
    autograd.runPostAccumulateGradHooks(leaf);
    assert.deepEqual(seen, ['arrived', 'arrived', 'first', 'second', 'third']);
  });

  it('are refused of tensors that are no leaves', () => {
    const y = ones([2], { requiresGrad: true }).mul(2);
    const { delayPostAccumulateGradHooks: delay, runPostAccumulateGradHooks: run } = autograd;
    assert.throws(() => delay(y, () => {}), AutogradError);
    assert.throws(() => delay(ones([2]), () => {}), AutogradError);
    assert.throws(() => run(y), AutogradError);
    assert.throws(() => delay(1 as never, null), ArgumentError);
    assert.throws(() => delay(ones([2], { requiresGrad: true }), 1 as never), ArgumentError);
    assert.throws(() => run(1 as never), ArgumentError);
  });
});
