/** Every op against PyTorch, on the CPU. */
import { goldenSuite } from './golden-suite.js';

goldenSuite('cpu');
