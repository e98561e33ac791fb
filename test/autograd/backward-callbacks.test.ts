/** `autograd.queueCallback`: what runs at the end of a backward pass, or when it fails. */
import assert from 'node:assert/strict';
import { AutogradError, autograd, ones } from '../../lib/index.js';

describe('autograd.queueCallback', () => {
  it('runs a function once all gradients have been accumulated', () => {
    const x = ones([2], { requiresGrad: true });
    const y = x.mul(2);
    let seen: unknown;
    y.registerHook(() => autograd.queueCallback(() => (seen = x.grad?.tolist())));
    y.sum().backward();
    assert.deepEqual(seen, [2, 2]);
  });

  it('runs onError in its place if the pass throws, and the error reaches the caller', () => {
    const x = ones([2], { requiresGrad: true });
    const [inner, outer] = [x.mul(2), x.mul(3)];
    const calls: unknown[] = [];
    outer.registerHook(() =>
      autograd.queueCallback(
        () => calls.push('end'),
        (error) => calls.push(error),
      ),
    );
    const planted = new RangeError('planted');
    inner.registerHook(() => {
      throw planted;
    });
    assert.throws(() => inner.add(outer).sum().backward(), planted);
    assert.deepEqual(calls, [planted]);
  });

  it('is refused outside of a backward pass', () => {
    assert.throws(() => autograd.queueCallback(() => {}), AutogradError);
  });
});
