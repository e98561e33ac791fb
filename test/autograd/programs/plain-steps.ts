/**
 * Trains for 20 steps with scopes and without hooks. Prints the bytes of tensors after 2, 11 and 20
 * of them.
 */
import { memory, nn, noGrad, randn, scope, type Tensor } from '../../../lib/index.js';

const model = new nn.Sequential(new nn.Linear(16, 32), new nn.ReLU(), new nn.Linear(32, 4));
const input = randn([8, 16]);
const held: number[] = [];
for (let step = 1; step <= 20; step++) {
  scope(() => model.forward(input).square().mean().backward());
  noGrad(() => {
    for (const p of model.parameters()) p.sub_(p.grad as Tensor);
  });
  model.zeroGrad();
  if (step % 9 !== 2) continue;
  memory.collect();
  held.push(memory.stats().allocatedBytes);
}
console.log(JSON.stringify(held));
