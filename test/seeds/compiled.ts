/** What the seed cases of compiled functions share. */
import assert from 'node:assert/strict';
import { setImmediate, setTimeout as sleep } from 'node:timers/promises';
import type { BackendName } from '../../lib/compile/backends.js';
import { aotAutograd, type GraphModule } from '../../lib/compile/index.js';
import { minCutRematerializationPartition } from '../../lib/compile/partition/min-cut.js';
import { DTensor } from '../../lib/distributed.js';
import { collectGarbage } from '../../lib/eager/gc-policy.js';
import { memory, ones, Tensor } from '../../lib/index.js';
import { valuesOf } from '../distributed/support/on-ranks.js';

/** The backends that a seed's code generator stands for. */
export const BACKENDS = [
  'eager',
  'aot_eager',
  'aot_eager_decomp_partition',
  'inductor',
] as const satisfies readonly BackendName[];

export const FULL = { fullgraph: true } as const;

/** What a caller can see of results: layout, placements, and the values of the local shards. */
export function factsOf(results: readonly (Tensor | null | undefined)[]): Promise<unknown[]> {
  return Promise.all(
    results.map(async (t) => {
      if (!(t instanceof Tensor)) return null;
      const { shape, requiresGrad } = t;
      const distributed = t instanceof DTensor;
      const local = distributed ? t._localTensor : t;
      return {
        shape,
        strides: stridesOf(t),
        placements: distributed ? t.placements.map(String) : null,
        requiresGrad,
        local: [local.shape, stridesOf(local)],
        values: await valuesOf(local.detach()),
      };
    }),
  );
}

/** Strides; those of dims of size one mean nothing. */
const stridesOf = (t: Tensor): number[] =>
  t.shape.flatMap((size, dim) => (size === 1 ? [] : [t.strides[dim] as number]));

/** Compares facts; numbers within the tolerance of float32. */
export function assertClose(seen: unknown, expected: unknown, what = 'results'): void {
  if (typeof seen === 'number' && typeof expected === 'number') {
    const room = 1e-5 + 1.3e-6 * Math.abs(expected);
    assert.ok(Math.abs(seen - expected) <= room, `${what}: ${seen}, expected ${expected}`);
  } else if (Array.isArray(seen) && Array.isArray(expected)) {
    assert.equal(seen.length, expected.length, what);
    seen.forEach((item, i) => {
      // Most are equal, and naming them takes longer than comparing them.
      if (item !== expected[i]) assertClose(item, expected[i], `${what}[${i}]`);
    });
  } else if (isRecord(seen) && isRecord(expected)) {
    assert.deepEqual(Object.keys(seen), Object.keys(expected), what);
    for (const key of Object.keys(seen)) assertClose(seen[key], expected[key], `${what}.${key}`);
  } else assert.deepEqual(seen, expected, what);
}

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype;

/**
 * Asserts after each test of a suite that it left no memory behind: a tensor that stayed a fake, a
 * graph or a saved tensor would keep some.
 */
export function leavesNoMemory(): void {
  let before: number | null = null;
  beforeEach(async () => {
    before ??= await bytesInUse();
  });
  afterEach(async function () {
    const allowed = before ?? 0;
    before = null;
    if (this.currentTest?.state !== 'passed') return;
    let bytes = await bytesInUse(allowed);
    // V8 may keep what a closure holds while another thread optimizes it.
    for (const end = Date.now() + 5_000; bytes > allowed && Date.now() < end; await sleep(50))
      bytes = await bytesInUse(allowed);
    assert.ok(bytes <= allowed, `${bytes - allowed} bytes are left`);
    before = allowed; // of the next test too: a collection of garbage takes a tenth of a second
  });
}

/**
 * What no collection of garbage frees, or at most `enough`. Some garbage takes several, as
 * finalizers free it.
 */
async function bytesInUse(enough = -1): Promise<number> {
  let least = Number.POSITIVE_INFINITY;
  for (let turns = 0; turns < 5 && least > enough; turns++) {
    // The last small tensors share a token, which stays until the next ones get another.
    ones([1000]);
    ones([1]);
    collectGarbage();
    await setImmediate();
    const { allocatedBytes } = memory.stats('cpu');
    if (allocatedBytes < least) turns = 0;
    least = Math.min(least, allocatedBytes);
  }
  return least;
}

/** Compares eager results with those of a capture and of two replays. */
export async function assertAsEager<F>(
  eager: F,
  compiled: F,
  step: (fn: F) => Promise<unknown> | unknown,
): Promise<void> {
  const expected = await step(eager);
  for (let call = 0; call < 3; call++)
    assertClose(await step(compiled), expected, `results of call ${call}`);
}

/** A backend that keeps the text of forward and backward graphs; saves come from a minimal cut. */
export function recordingBackend(): {
  backend: ReturnType<typeof aotAutograd>;
  forward: GraphModule[];
  backward: GraphModule[];
} {
  const [forward, backward] = [[], []] as [GraphModule[], GraphModule[]];
  const into = (list: GraphModule[]) => (module: GraphModule) => {
    list.push(module);
    return module.forward.bind(module);
  };
  return {
    backend: aotAutograd({
      fwCompiler: into(forward),
      bwCompiler: into(backward),
      partitionFn: minCutRematerializationPartition,
    }),
    forward,
    backward,
  };
}

/** The ops that a graph calls, in order. */
export const opsOf = ({ graph }: Pick<GraphModule, 'graph'>): string[] =>
  graph.callNodes.map(({ op }) => op?.name ?? '');
