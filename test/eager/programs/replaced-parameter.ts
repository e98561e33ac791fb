/**
 * Trains in scopes a model one of whose parameters was replaced when it was built. Prints the bytes
 * that are allocated after a few steps, and those of what the program still reaches.
 */
import { memory, nn, ones, optim, scope } from '../../../lib/index.js';

const [ROWS, WIDTH, STEPS] = [40_960, 1024, 4];

const tokens = new nn.Embedding(ROWS, WIDTH);
const head = new nn.Linear(WIDTH, ROWS, { bias: false });
head.weight = tokens.weight;
const optimizer = new optim.AdamW(head.parameters());
const input = ones([2, WIDTH]);

function step(): void {
  scope(() => {
    head.forward(input).sum().backward();
    optimizer.step();
    optimizer.zeroGrad();
  });
}

for (let i = 0; i < STEPS; i++) step();
// The weight and two moments of it.
const reached = 3 * ROWS * WIDTH * 4;
console.log(JSON.stringify({ allocated: memory.stats().allocatedBytes, reached }));
