/**
 * Makes tensors in a loop and drops them. Prints for each source the most bytes that were allocated
 * at once.
 */
import { empty, memory, rand, type Tensor, tensor } from '../../../lib/index.js';

const MIB = 2 ** 20;
const floats = new Float32Array(2 * MIB);
const bytes = new Uint8Array(8 * MIB);
const like = rand([1]);
const sources: Record<string, () => Tensor> = {
  rand: () => rand([2 * MIB]),
  float32: () => tensor(floats),
  uint8: () => tensor(bytes),
  newTensor: () => like.newTensor(floats),
  empty: () => empty([2 * MIB]),
};

async function peakOf(make: () => Tensor, blocks: boolean): Promise<number> {
  memory.resetPeak();
  for (let i = 0; i < 200; i++) {
    const first = make().select(0, 0);
    if (blocks) first.item();
    else await first.itemAsync();
    if (i % 10 === 0) await new Promise(setImmediate);
  }
  return memory.stats().peakAllocatedBytes / MIB;
}

const peaks: Record<string, number> = {};
for (const [name, make] of Object.entries(sources)) {
  peaks[name] = await peakOf(make, false);
  peaks[`${name}, blocking`] = await peakOf(make, true);
}
console.log(JSON.stringify(peaks));
