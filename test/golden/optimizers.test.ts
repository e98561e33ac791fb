/** Optimizers and gradient clipping against PyTorch, on the CPU. */
import { optimizerSuite } from './optimizer-suite.js';

optimizerSuite('cpu');
