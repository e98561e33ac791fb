/**
 * Everything that the other files of this folder ask of the CPU, on a CUDA device. The reference
 * stays PyTorch's CPU result.
 */
import { describe, it } from 'mocha';
import * as sw from '../../lib/index.js';
import { goldenSuite } from './golden-suite.js';
import { optimizerSuite } from './optimizer-suite.js';
import { tinyGptSuite } from './tiny-gpt-suite.js';
import { transformerSuite } from './transformer-suite.js';

if (sw.cuda.isAvailable()) {
  goldenSuite('cuda');
  optimizerSuite('cuda');
  transformerSuite('cuda');
  tinyGptSuite('cuda');
} else {
  describe('golden on cuda', () => {
    it.skip('needs a CUDA device: see npx shardwise doctor');
  });
}
