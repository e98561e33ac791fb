/**
 * Runs with SHARDWISE_CPU_MEMORY_LIMIT = 64 MiB and prints the effect of each stage of running out
 * of memory; see memory-stages.test.ts.
 */
import {
  keep,
  memory,
  type OutOfMemoryError,
  scope,
  type Tensor,
  zeros,
} from '../../../lib/index.js';

const MIB = 2 ** 20;
const sized = (mib: number): Tensor => zeros([(mib * MIB) / 4]);
const now = (): { tokens: number; retries: number; reserved: number } => {
  const { tokens, outOfMemoryRetries, reservedBytes } = memory.stats();
  return { tokens, retries: outOfMemoryRetries, reserved: reservedBytes };
};

/**
 * Tensors that nothing refers to, beyond their scope, where only a collection frees them; the
 * library has no reason for one yet.
 */
function leaveBehind(count: number): void {
  scope(() => {
    for (let i = 0; i < count; i++) keep(sized(4));
  });
}

function failure(run: () => unknown): {
  message: string;
  details: Readonly<Record<string, unknown>>;
} {
  try {
    run();
  } catch (error) {
    return { message: (error as Error).message, details: (error as OutOfMemoryError).details };
  }
  return { message: 'none', details: {} };
}

// 1: what is cached goes first; what was left behind is not looked for.
leaveBehind(1);
scope(() => {
  for (let i = 0; i < 7; i++) sized(4);
});
const cachedBefore = now();
const afterCache = scope(() => {
  sized(40);
  return now();
});

// 2: then garbage is collected.
memory.emptyCache();
leaveBehind(5);
const garbageBefore = now();
const afterGarbage = scope(() => {
  sized(56);
  return now();
});

// 3: then it is an error.
memory.emptyCache();
const held = [sized(16), sized(8), sized(8), sized(24)];
const full = failure(() => sized(30));
const byOp = failure(() => (held[0] as Tensor).add(1));

// The process goes on.
for (const t of held) t.dispose();
const total = scope(() => sized(48).add_(1).sum().item());

console.log(
  JSON.stringify({ cachedBefore, afterCache, garbageBefore, afterGarbage, full, byOp, total }),
);
