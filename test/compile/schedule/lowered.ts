/** Lowered graphs for tests, and the comparison of a plan with its graph run op by op. */
import assert from 'node:assert/strict';
import { recording } from '../../../lib/compile/capture/levels.js';
import { Recorder } from '../../../lib/compile/capture/recorder.js';
import type { RunValue } from '../../../lib/compile/graph/effects.js';
import type { Graph } from '../../../lib/compile/graph/graph.js';
import { GraphModule } from '../../../lib/compile/graph/graph-module.js';
import { GuardCollector } from '../../../lib/compile/guards/guard-collector.js';
import { buildPlan, type CompiledPlan } from '../../../lib/compile/schedule/plan.js';
import { manualSeed, memory, noGrad, Tensor, zeros } from '../../../lib/index.js';

/** A function of tensors that returns a list. */
export type Program = (...inputs: Tensor[]) => Tensor[];

/** The graph of a function below autograd. */
export function lower(fn: Program, inputs: readonly Tensor[]): Graph {
  const recorder = new Recorder(new GuardCollector(), 'lowered');
  try {
    inputs.forEach((t, i) => recorder.placeholder(t, i));
    const results = recording(recorder, () => noGrad(() => fn(...inputs)));
    recorder.graph.outputs = results.map((t) => recorder.valueOf(t));
    return recorder.graph;
  } finally {
    recorder.restore();
  }
}

/** The allocated bytes of the CPU when all garbage is collected, also that of other tests. */
export function allocatedBytes(): number {
  for (let before = Number.POSITIVE_INFINITY; ; ) {
    memory.collect();
    const now = memory.stats().allocatedBytes;
    if (now === before) return now;
    before = now;
  }
}

/** Hundreds of runs would leave more than a few objects that the engine has not dropped yet. */
export function assertNotGrown(before: number): void {
  const grown = allocatedBytes() - before;
  assert.ok(grown < 10_000, `${grown} bytes more`);
}

/** The plan of a function. */
export function planOf(fn: Program, inputs: readonly Tensor[]): CompiledPlan {
  return buildPlan(lower(fn, inputs));
}

/** Runs a graph op by op, without recording gradients. */
export function runSlowly(graph: Graph, inputs: readonly RunValue[]): RunValue[] {
  return noGrad(() => new GraphModule(graph).run(inputs));
}

/** A copy of the same layout in memory of its own. */
export function copyOf(t: Tensor): Tensor {
  if (t.storage === null) return t;
  const items = t.storage.nbytes / t.dtype.itemsize;
  const copy = zeros([items], { dtype: t.dtype }).asStrided(t.shape, t.strides, t.storageOffset);
  const isExpanded = t.strides.some((stride, d) => stride === 0 && (t.shape[d] as number) > 1);
  return isExpanded ? t : copy.copy_(t);
}

/** Layout, version and bytes of a tensor, to be compared. */
export function exactly(t: RunValue): unknown {
  if (!(t instanceof Tensor)) return t;
  if (t.storage === null) return t.scalarValue;
  const { shape, strides, dtype, device } = t;
  const values = t.contiguous().toTypedArray();
  const bytes = Buffer.from(values.buffer, values.byteOffset, values.byteLength).toString('hex');
  return { shape, strides, dtype: dtype.name, device: String(device), version: t._version, bytes };
}

/**
 * Runs the graph op by op and as a plan, twice each, on copies of the inputs and with the same
 * seed; compares results and what became of the inputs to the bit. Returns the plan.
 */
export function assertSameAsSteps(
  fn: Program,
  inputs: readonly Tensor[],
  copies: (inputs: readonly Tensor[]) => Tensor[] = (all) => all.map(copyOf),
): CompiledPlan {
  const graph = lower(fn, copies(inputs));
  const plan = buildPlan(graph);
  for (const seed of [1, 2]) {
    const [expected, actual] = [
      (given: Tensor[]) => runSlowly(graph, given),
      (given: Tensor[]) => plan.run(given),
    ].map((run) => {
      const given = copies(inputs);
      manualSeed(seed);
      const results = run(given);
      return [...results.map(exactly), ...given.map(exactly)];
    });
    assert.deepEqual(actual, expected, String(graph));
  }
  return plan;
}
