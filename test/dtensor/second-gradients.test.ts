/**
 * Second derivatives through views of distributed tensors, whose gradients are written into zeros.
 */
import assert from 'node:assert/strict';
import { distributeTensor, initDeviceMesh, Replicate, Shard } from '../../lib/distributed.js';
import { autograd, manualSeed, pad, randn, type Tensor } from '../../lib/index.js';
import { withRanks } from '../../lib/testing/index.js';

const views: Record<string, (x: Tensor) => Tensor> = {
  narrow: (x) => x.narrow(0, 1, 2),
  'slice with steps': (x) => x.slice(1, 0, 5, 2),
  select: (x) => x.select(0, 3),
  diagonal: (x) => x.diagonal(1),
  unfold: (x) => x.unfold(1, 3, 1),
  split: (x) => x.split(2, 0)[0] as Tensor,
  roll: (x) => x.roll(1, 0),
  pad: (x) => pad(x, [1, -1]),
};

function secondGradient(fn: (x: Tensor) => Tensor, x: Tensor): Tensor {
  const [first] = autograd.grad([fn(x).pow(3).sum()], [x], { createGraph: true }) as [Tensor];
  first.square().sum().backward();
  return x.grad as Tensor;
}

describe('second derivatives of distributed tensors', () => {
  for (const [name, fn] of Object.entries(views)) {
    it(
      `are those of one device through ${name}`,
      withRanks(3, async () => {
        const mesh = initDeviceMesh('cpu', [3]);
        manualSeed(4);
        const whole = randn([4, 5]);
        const expected = await secondGradient(fn, whole.clone().requiresGrad_()).read();
        for (const placement of [Shard(0), Shard(1), Replicate()]) {
          const x = distributeTensor(whole, mesh, [placement]).requiresGrad_();
          const actual = await secondGradient(fn, x).fullTensor().read();
          expected.forEach((value, i) => {
            const [want, given] = [Number(value), Number(actual[i])];
            assert.ok(
              Math.abs(given - want) <= 1e-4 * (1 + Math.abs(want)),
              `${placement}: element ${i} is ${given}, not ${want}`,
            );
          });
        }
      }),
    );
  }
});
