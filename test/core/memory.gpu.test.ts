/** The memory promises on a GPU. */
import { cuda } from '../../lib/index.js';
import { runProgram } from '../run-program.js';
import { assertFlat } from './flat-memory.js';

describe('the garbage collector, CUDA', () => {
  before(function () {
    if (!cuda.isAvailable()) this.skip();
  });

  it('keeps an eager training loop of 20,000 steps without scopes flat', async function () {
    this.timeout(120000);
    assertFlat(await runProgram('core/programs/training-loop', 'cuda', '20000'));
  });
});
