/** Transformer modules against PyTorch, on the CPU. */
import { transformerSuite } from './transformer-suite.js';

transformerSuite('cpu');
