/** Compares a graph with fused calls with the graph as it was. */
import assert from 'node:assert/strict';
import { fusePointwise } from '../../../lib/compile/fusion/fuse.js';
import { copyGraph } from '../../../lib/compile/graph/copy.js';
import type { Graph } from '../../../lib/compile/graph/graph.js';
import { lint } from '../../../lib/compile/graph/lint.js';
import { buildPlan } from '../../../lib/compile/schedule/plan.js';
import { manualSeed, type Tensor } from '../../../lib/index.js';
import { copyOf, exactly, lower, type Program, runSlowly } from '../schedule/lowered.js';

/**
 * Fuses the calls of a function. Asserts that results, and what became of the inputs, are the same
 * to the bit, op by op and as a plan, at two seeds.
 */
export function fusedGraph(fn: Program, inputs: readonly Tensor[]): Graph {
  const graph = lower(fn, inputs.map(copyOf));
  const before = String(graph);
  const { graph: fused } = copyGraph(graph);
  fusePointwise(fused);
  lint(fused);
  assert.equal(String(graph), before);
  const plan = buildPlan(fused);
  for (const seed of [1, 2]) {
    const [expected, ...actual] = [
      (given: Tensor[]) => runSlowly(graph, given),
      (given: Tensor[]) => runSlowly(fused, given),
      (given: Tensor[]) => plan.run(given),
    ].map((run) => {
      const given = inputs.map(copyOf);
      manualSeed(seed);
      const results = run(given);
      return [...results.map(exactly), ...given.map(exactly)];
    });
    for (const each of actual) assert.deepEqual(each, expected, `${graph}\n\n${fused}`);
  }
  return fused;
}

/** The names of the calls of a graph; those of fused calls with the number of their steps. */
export function callsOf(graph: Graph): string[] {
  return graph.callNodes.map(({ name, op, params }) =>
    op?.name === 'fusedPointwise'
      ? `fused ${(params as { program: { steps: unknown[] } }).program.steps.length}`
      : (op?.name ?? name),
  );
}
