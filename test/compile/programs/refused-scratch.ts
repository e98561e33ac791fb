/**
 * Runs a compiled function whose second kernel finds no memory for its scratch space, with
 * refusals.c preloaded. Prints the errors, of a kernel that runs at once and of one that waits in
 * the queue, and a result afterwards.
 */
import { rmSync, writeFileSync } from 'node:fs';
import {
  compile,
  int64,
  memory,
  ones,
  type ShardwiseError,
  type Tensor,
} from '../../../lib/index.js';

const backend = process.argv[2] as 'inductor' | 'aot_eager';
const file = process.env['SHARDWISE_TEST_NO_SCRATCH'] as string;
const f = compile((x: Tensor) => x.add(1).matmul(x).sum(), { backend });
const argument = (n: number): Tensor => ones([n, n], { dtype: int64 });

function errorOf(n: number): { name: string; op: unknown; message: string } {
  try {
    f(argument(n)).item();
    return { name: 'none', op: '', message: '' };
  } catch (error) {
    const { constructor, details, message } = error as ShardwiseError;
    return { name: constructor.name, op: details?.['op'], message };
  }
}

ones([200, 200]).add(1).sum().item(); // what is there once: a stream, workers
writeFileSync(file, '');
const errors = [errorOf(8), errorOf(200)];
rmSync(file);
const result = Number(f(argument(8)).item());
memory.collect();
console.log(JSON.stringify({ errors, result, bytes: memory.stats().allocatedBytes }));
