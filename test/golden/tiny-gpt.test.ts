/** A tiny GPT against PyTorch, on the CPU. */
import { tinyGptSuite } from './tiny-gpt-suite.js';

tinyGptSuite('cpu');
