/** Prints how many threads kernels of the CPU run on. */
import { memory } from '../../../lib/index.js';
import { addon } from '../../../lib/runtime.js';

memory.stats();
process.stdout.write(String(addon.deviceInfo(0).numCores));
