/** Random programs that compute and communicate: a list of numbers for each step makes its choices. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import { heldMemory } from '../../../../lib/compile/estimate/held-memory.js';
import { atLargestShards } from '../../../../lib/compile/estimate/largest-shards.js';
import {
  type CapturedStep,
  captureStep,
  type Graph,
  type Node,
} from '../../../../lib/compile/index.js';
import { functional } from '../../../../lib/distributed.js';
import { cat, dropout, manualSeed, rand, type Tensor } from '../../../../lib/index.js';
import { valuesOf } from '../../../distributed/support/on-ranks.js';

/** Steps on matrices of this many rows and columns. */
const SIZE = 8;

type Action = (a: Tensor, b: Tensor) => Tensor;

const actions: readonly Action[] = [
  (a, b) => a.matmul(b),
  (a, b) => a.add(b),
  (a) => a.sin(),
  (a) => a.t(),
  (a) => a.add_(0.5),
  (a, b) => a.mul_(b),
  (a) => dropout(a, 0.5),
  (a) =>
    a
      .narrow(0, 2, 4)
      .add_(1)
      .t()
      .matmul(a.narrow(0, 0, 4)),
  (a) => functional.allReduce(a, 'sum'),
  (a) => functional.allReduce(a.t(), 'sum').t(),
  (a) => functional.allGatherTensor(a, 0).narrow(0, 3, SIZE),
  (a, b) => functional.reduceScatterTensor(cat([a, b]), 'sum', 0),
];

/** The numbers of a program. */
export const programs = fc.array(fc.array(fc.nat(), { minLength: 3, maxLength: 3 }), {
  minLength: 4,
  maxLength: 24,
});

/** The program of such numbers. Three matrices go in, and come out with the last results. */
export function programOf(steps: readonly (readonly number[])[]): (...args: Tensor[]) => Tensor[] {
  return (...args) => {
    const pool = [...args];
    for (const [action, a, b] of steps as readonly [number, number, number][]) {
      const [first, second] = [pool[a % pool.length], pool[b % pool.length]] as [Tensor, Tensor];
      pool.push((actions[action % actions.length] as Action)(first, second));
    }
    return pool.slice(-4).map((t) => t.mul(1));
  };
}

/** The arguments of a rank, always the same. */
export function argumentsOf(rank: number): Tensor[] {
  manualSeed(rank + 1);
  return Array.from({ length: 3 }, () => rand([SIZE, SIZE]).sub(0.5));
}

export const captured = (fn: (...args: Tensor[]) => Tensor[], rank: number) =>
  captureStep(fn, argumentsOf(rank));

/** The results of a step, and its arguments after it. */
export async function resultsOf(
  step: CapturedStep<Tensor[], Tensor[]>,
  rank: number,
): Promise<number[][]> {
  const args = argumentsOf(rank);
  step.module.recompile();
  manualSeed(7);
  const results = step.run(...args);
  return Promise.all([...results, ...args].map(valuesOf));
}

/** The nodes of these kinds, in order. */
const ordered = (graph: Graph, isOne: (node: Node) => boolean): string[] =>
  graph.nodes.filter(isOne).map(({ name }) => name);

/** What all passes keep: the order of collectives and of draws, and the number of nodes. */
export function keptBy(graph: Graph): readonly unknown[] {
  const isCollective = ({ op }: Node): boolean => op?.traits.includes('collective') ?? false;
  return [
    ordered(graph, isCollective),
    ordered(graph, ({ effect }) => effect === 'draw'),
    graph.nodes.map(({ name }) => name).sort(),
    graph.outputs.length,
  ];
}

/**
 * The most bytes that results of a graph hold at once on the rank with the largest shards, if each
 * is freed after its last use, and what a collective reads after its wait.
 */
export function peakOf(given: Graph): number {
  const graph = atLargestShards(given);
  const positionOf = new Map(graph.nodes.map((node, at) => [node, at]));
  const changes = new Array<number>(graph.nodes.length + 1).fill(0);
  for (const { bytes, nodes, isGiven, isKept } of heldMemory(graph, { untilWaits: true })) {
    const places = nodes.map((node) => positionOf.get(node) as number);
    if (isGiven) continue;
    (changes[Math.min(...places)] as number) += bytes;
    if (!isKept) (changes[Math.max(...places) + 1] as number) -= bytes;
  }
  let [now, peak] = [0, 0];
  for (const change of changes) {
    now += change;
    peak = Math.max(peak, now);
  }
  return peak;
}

/** The names of nodes that compute or communicate, without views. */
export const callsIn = (graph: Graph): string[] =>
  graph.callNodes
    .filter(({ op }) => op?.view == null || op.name === 'waitTensor')
    .map((n) => n.name);

export function nodeNamed(graph: Graph, name: string): Node {
  const found = graph.nodes.find((node) => node.name === name);
  assert.ok(found, `${name} of ${graph.nodes.map((node) => node.name).join(', ')}`);
  return found;
}
