/** Ends by an error of the library: `module`, `timer` or `promise` says where it is thrown. */
import { ones } from '../../../lib/index.js';

function step(): void {
  ones([2, 3]).matmul(ones([2, 3]));
}

async function training(): Promise<void> {
  await null;
  step();
}

const [, , place] = process.argv;
if (place === 'module') step();
else if (place === 'timer') setTimeout(step, 1);
else void training();
