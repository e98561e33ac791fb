/** Compiles, calls and drops functions. Prints the bytes of heap that each leaves behind. */
import { setImmediate as turn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { compile, ones, type Tensor } from '../../../lib/index.js';

setFlagsFromString('--expose-gc');
const gc = runInNewContext('gc') as () => void;
const COUNT = 2000;
const x = ones([4]);

function compileAndDrop(count: number): void {
  for (let i = 0; i < count; i++) compile((t: Tensor) => t.mul(2).add(i))(x);
}

async function heap(): Promise<number> {
  for (let i = 0; i < 3; i++) {
    gc();
    await turn();
  }
  return process.memoryUsage().heapUsed;
}

compileAndDrop(300);
const before = await heap();
compileAndDrop(COUNT);
console.log(JSON.stringify({ bytesEach: ((await heap()) - before) / COUNT }));
