/**
 * Runs with SHARDWISE_CPU_MEMORY_LIMIT and prints the errors as JSON; see out-of-memory.test.ts.
 */
import {
  float64,
  fromBlob,
  memory,
  type OutOfMemoryError,
  ones,
  type Tensor,
  zeros,
} from '../../../lib/index.js';

const MIB = 2 ** 20;

function failure(run: () => unknown): {
  kind: string;
  code: string;
  message: string;
  holders: readonly memory.MemoryHolder[];
} {
  try {
    run();
  } catch (error) {
    const { message, code, holders } = error as OutOfMemoryError;
    return { kind: (error as Error).constructor.name, code, message, holders };
  }
  return { kind: 'none', code: '', message: '', holders: [] };
}

const held: Tensor[] = [ones([300, 1000]).add(1), ones([500], { dtype: float64 })];
// 128 MiB of the JavaScript heap's, not of the allocator
const shares = fromBlob(new Float32Array(32 * MIB));
const filled = failure(() => {
  for (;;) held.push(zeros([MIB])); // 4 MiB each
});
const count = held.length - 2;
const atOnce = failure(() => zeros([100 * MIB]));
const byOp = failure(() => {
  for (;;) held.push((held[2] as Tensor).add(1));
});
const stats = memory.stats();

// The process goes on: with what is there, and with what is given back.
const still = (held[2] as Tensor).select(0, MIB - 1).item(); // there is not one byte for a result
for (const t of held.splice(0)) t.dispose();
const again = ones([MIB]);
const total = again.sum().item();
again.dispose();

// Garbage is no reason to fail: far more than the limit passes through.
for (let i = 0; i < 200; i++) ones([MIB]).add(1);
const passed = ones([MIB]).sum().item();

console.log(
  JSON.stringify({
    shared: shares.numel(),
    filled,
    atOnce,
    byOp,
    count,
    still,
    total,
    passed,
    reserved: stats.reservedBytes,
    retries: stats.outOfMemoryRetries,
  }),
);
