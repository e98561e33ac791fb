/**
 * Trains without scopes and without a turn of the event loop, with large tensors that live in the
 * midst of each step alone. Prints how many full collections a step needs after the first steps.
 */
import { collector } from '../../../lib/eager/collector.js';
import { nn, ones, optim, type Tensor } from '../../../lib/index.js';

const [WARM_UP, STEPS] = [15, 12];
const [ROWS, WIDTH, CLASSES, LAYERS] = [2048, 192, 4096, 48];
const model = new nn.Sequential(
  ...Array.from({ length: LAYERS }, () => new nn.Linear(WIDTH, WIDTH)),
  new nn.Linear(WIDTH, CLASSES),
);
const optimizer = new optim.SGD(model.parameters(), { lr: 1e-3 });
const input = ones([ROWS, WIDTH]);
const collections = collector() as { full: () => void };
const { full } = collections;
let count = 0;
collections.full = () => {
  count++;
  full();
};

function step(): Tensor {
  const scores = model.forward(input);
  const loss = scores.logSoftmax(1).mean();
  loss.backward();
  optimizer.step();
  optimizer.zeroGrad();
  return loss.detach();
}

for (let i = 0; i < WARM_UP; i++) step();
count = 0;
for (let i = 0; i < STEPS; i++) step();
console.log(JSON.stringify({ perStep: count / STEPS }));
