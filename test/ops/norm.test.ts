/** Normalisation of rows whose offset is large compared to their spread. */
import assert from 'node:assert/strict';
import { arange, float64, full, layerNorm, type Tensor } from '../../lib/index.js';

const largest = (t: Tensor): number => t.abs().amax().item();

describe('layerNorm', () => {
  it('is 0 for a constant row', () => {
    for (const value of [1e6, 10000.3, 3.3])
      for (const n of [768, 1000, 8191])
        assert.equal(largest(layerNorm(full([2, n], value), [n])), 0, `${value} ${n}`);
  });

  it('keeps the digits of small steps on a large offset', () => {
    // exact after adding the offsets below
    const steps = arange(1000).float().remainder(7).div(256);
    const expected = layerNorm(steps.to(float64).view([1, 1000]), [1000]);
    for (const offset of [100, 1e4, 3e4]) {
      const actual = layerNorm(steps.add(offset).view([1, 1000]), [1000]).to(float64);
      assert.ok(
        largest(actual.sub(expected)) < 1e-5,
        `${largest(actual.sub(expected))} at ${offset}`,
      );
    }
  });
});
