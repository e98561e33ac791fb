/** Attention on a GPU writes the gradients of parts of one tensor into one tensor. */

import assert from 'node:assert/strict';
import { bfloat16, float16, float32, manualSeed, nn, rand, type Tensor } from '../../lib/index.js';
import { skipWithoutCuda } from '../skip.js';
import { near, type Operands, room } from './attention-operands.js';
import { assertJoined, opsOf, packings } from './attention-packings.js';

const { scaledDotProductAttention } = nn.functional;

describe('gradients of queries, keys and values that are parts of one tensor, on a GPU', () => {
  before(function () {
    skipWithoutCuda(this);
  });

  for (const [name, { isGrouped, shape, split }] of Object.entries(packings))
    for (const dtype of [bfloat16, float16, float32])
      it(`are those of the CPU, and of separate tensors bit by bit: ${name}, ${dtype.name}`, () => {
        // the second depth fits no box of the copy engine
        for (const depth of [64, 128, 20]) {
          const sizes = { batch: 2, length: 200, heads: 4, kvHeads: isGrouped ? 2 : 4, depth };
          manualSeed(depth);
          const values = rand(shape(sizes), { dtype }).sub(0.5);
          const gradientOf = (device: 'cpu' | 'cuda', copies: boolean): Tensor => {
            const x = values.to(device).requiresGrad_();
            const operands = split(x.mul(1), sizes);
            const taken = copies ? (operands.map((t) => t.clone()) as Operands) : operands;
            const out = scaledDotProductAttention(...taken, { isCausal: true, enableGqa: true });
            const ops = opsOf(() => out.backward(out.detach()));
            if (!copies) assertJoined(ops);
            return x.grad as Tensor;
          };
          const joined = gradientOf('cuda', false);
          assert.ok(joined.equal(gradientOf('cuda', true)), `depth ${depth}`);
          near(joined, gradientOf('cpu', false), room.get(dtype) as number, `depth ${depth}`);
        }
      });
});
