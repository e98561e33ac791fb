/** The memory promises on a GPU. */
import { cuda } from '../../lib/index.js';
import { assertFlat } from './flat-memory.js';
import { runProgram } from './run-program.js';

describe('the garbage collector, CUDA', () => {
  before(function () {
    if (!cuda.isAvailable()) this.skip();
  });

  it('keeps an eager training loop of 20,000 steps without scopes flat', async function () {
    this.timeout(120000);
    assertFlat(await runProgram('training-loop', 'cuda', '20000'));
  });
});
