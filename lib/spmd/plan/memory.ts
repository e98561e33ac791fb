/** The memory that a rank holds while the graph of a step runs, by what it is for. */

import { heldMemory } from '../../compile/estimate/held-memory.js';
import { Dependencies } from '../../compile/graph/dependencies.js';
import type { Graph } from '../../compile/graph/graph.js';
import type { Node } from '../../compile/graph/node.js';
import { isCollective, isView, isWait } from '../../compile/graph/traits.js';
import type { NodeValue } from '../../compile/partition/value-map.js';
import type { StepGradient } from '../../compile/step/gradients.js';
import type { StepInput } from '../../compile/step/lifts.js';

/** Bytes on one rank at the time when it holds most. */
export interface PlanMemory {
  /** The sum. */
  readonly total: number;
  /** Parameters, and those of other ranks that are gathered. */
  readonly parameters: number;
  /** Gradients of parameters. */
  readonly gradients: number;
  /** Tensors of the optimizers. */
  readonly optimizerState: number;
  /** Results of the forward and the backward pass, the batch, and all else. */
  readonly activations: number;
}

/** What memory is for. */
export type MemoryRole = Exclude<keyof PlanMemory, 'total'>;

/** Memory that is held while some nodes run. */
export interface Held {
  readonly role: MemoryRole;
  readonly bytes: number;
  /** The positions of the first and the last node. */
  readonly from: number;
  readonly to: number;
  /** The first value in it. */
  readonly value: NodeValue;
}

/** The parts of a captured step that memory follows from. */
export interface StepParts {
  readonly graph: Graph;
  readonly inputs: readonly StepInput[];
  readonly gradients: readonly StepGradient[];
}

const ROLES: Partial<Record<StepInput['role'], MemoryRole>> = {
  parameter: 'parameters',
  state: 'optimizerState',
  gradient: 'gradients',
};

/** The values of a step that are gradients of parameters, before and after they are reduced. */
export function gradientsOf({ gradients }: StepParts): NodeValue[] {
  const reduced = gradients.flatMap(({ value }) =>
    value !== null && 'node' in value ? [value] : [],
  );
  return reduced.flatMap((value) => {
    const input = reductionOf(value.node)?.inputs[0];
    return input !== undefined && 'node' in input ? [value, input] : [value];
  });
}

/**
 * The same values in a graph after passes: those that are still there, and all collectives that the
 * passes have made.
 */
export function gradientsIn(graph: Graph, parts: StepParts): NodeValue[] {
  const ids = new Set(parts.graph.nodes.map(({ id }) => id));
  const byId = new Map(graph.nodes.map((node) => [node.id, node]));
  const kept = gradientsOf(parts).flatMap(({ node, output }) => {
    const copy = byId.get(node.id);
    return copy === undefined ? [] : [{ node: copy, output }];
  });
  const made = graph.nodes.filter((node) => isCollective(node) && !ids.has(node.id));
  return [
    ...kept,
    ...made.flatMap((node) => [
      { node, output: 0 },
      ...node.inputs.filter((value): value is NodeValue => 'node' in value),
    ]),
  ];
}

/** The collective that a value is the result of, behind waits and views. */
export function reductionOf(node: Node): Node | null {
  let at = node;
  while (isView(at) || isWait(at)) {
    const [input] = at.inputs;
    if (input === undefined || 'number' in input) return null;
    at = input.node;
  }
  return isCollective(at) ? at : null;
}

/** All memory of a graph. What it allocates is freed after the last node that uses it. */
export function heldBy(
  graph: Graph,
  inputs: readonly StepInput[],
  gradients: readonly NodeValue[],
): Held[] {
  const dependencies = new Dependencies(graph);
  const { positionOf } = dependencies;
  const byNode = new Map(inputs.map((input) => [input.node.id, input]));
  const ofGradients = new Set(gradients.map((value) => dependencies.memoryOf(value)));
  const last = graph.nodes.length - 1;
  return heldMemory(graph).map(({ value, bytes, nodes, isKept }) => {
    const input = byNode.get(value.node.id);
    const role =
      (input === undefined ? undefined : ROLES[input.role]) ??
      (ofGradients.has(dependencies.memoryOf(value)) ? 'gradients' : 'activations');
    const from = positionOf(value.node);
    const to = isKept ? last : Math.max(...nodes.map(positionOf));
    return { role, bytes, from, to, value };
  });
}

/** The roles at the node at which the sum is largest. */
export function peakOf(held: readonly Held[]): PlanMemory {
  const changes = new Map<number, Map<MemoryRole, number>>();
  const change = (at: number, role: MemoryRole, bytes: number): void => {
    const here = changes.get(at) ?? new Map<MemoryRole, number>();
    changes.set(at, here.set(role, (here.get(role) ?? 0) + bytes));
  };
  for (const { role, bytes, from, to } of held) {
    change(from, role, bytes);
    change(to + 1, role, -bytes);
  }
  const now = { parameters: 0, gradients: 0, optimizerState: 0, activations: 0 };
  let peak: PlanMemory = { total: 0, ...now };
  for (const at of [...changes.keys()].sort((a, b) => a - b)) {
    for (const [role, bytes] of changes.get(at) ?? []) now[role] += bytes;
    const total = now.parameters + now.gradients + now.optimizerState + now.activations;
    if (total > peak.total) peak = { total, ...now };
  }
  return peak;
}
