/**
 * Calls a compiled function with little memory (SHARDWISE_CPU_MEMORY_LIMIT), and prints after each
 * call its outcome and the MiB that collections leave.
 */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { compile, memory, ones, type Tensor } from '../../../lib/index.js';

setFlagsFromString('--expose-gc');
const gc = runInNewContext('gc') as () => void;
const MIB = 2 ** 18; // elements
const backend = process.argv[2] as 'inductor' | 'aot_eager';
const f = compile((x: Tensor) => x.mul(2).add(1).exp().sum(), { backend });

function outcome(numel: number): string {
  try {
    f(ones([numel])).item();
    return 'value';
  } catch (error) {
    return (error as Error).constructor.name;
  }
}

/** The library's own collection would also drop what commands hold. */
function left(): number {
  for (let i = 0; i < 4; i++) gc();
  return Math.round(memory.stats().allocatedBytes / 2 ** 20);
}

const calls = [4, 12 * MIB, 4, 12 * MIB, 12 * MIB, 4 * MIB, 4].map((numel) => {
  const what = outcome(numel);
  return [what, left()] as const;
});
// Garbage is no reason to fail: far more than the limit passes through.
for (let i = 0; i < 50; i++) f(ones([4 * MIB]));
console.log(JSON.stringify({ calls, last: outcome(4 * MIB) }));
