/** The groups of parameters that fully sharded data parallelism gathers and reduces together. */
import type { Graph } from '../../compile/graph/graph.js';
import type { Node, ValueMeta } from '../../compile/graph/node.js';
import type { StepGradient } from '../../compile/step/gradients.js';
import type { StepInput } from '../../compile/step/lifts.js';
import type { Tensor } from '../../core/tensor.js';
import type { Dependencies } from '../dependencies.js';
import { reductionOf, type StepParts } from './memory.js';

/** A sharded parameter. */
export interface Sharded {
  readonly input: StepInput;
  /** Bytes of the whole parameter, with rows that make all shards equal. */
  readonly bytes: number;
  readonly hasGradient: boolean;
  /** The collective that reduces its gradient; null where all ranks have computed all of it. */
  readonly reduction: Node | null;
}

/** Parameters that are gathered together. */
export interface Group {
  readonly name: string;
  readonly parameters: readonly Sharded[];
  readonly bytes: number;
  /**
   * Positions of the first and the last node that reads them in forward and in backward, where the
   * gradients are reduced, too; null for a group that backward does not use.
   */
  readonly forward: readonly [from: number, to: number];
  readonly backward: readonly [from: number, to: number] | null;
}

/** The groups of a step, in the order in which it uses them. */
export function groupsOf(
  { graph, inputs, gradients }: StepParts,
  dependencies: Dependencies,
  ranks: number,
  groupOf: (name: string) => string,
): Group[] {
  const reductions = reductionsOf(gradients, ranks);
  const owners = new Set(gradients.flatMap(({ owner, value }) => (value === null ? [] : [owner])));
  const readers = readersOf(graph, dependencies);
  const positionsOf = (input: StepInput): number[] =>
    readers.get(dependencies.memoryOf({ node: input.node, output: 0 })) ?? [];
  // Nothing reads the bias of a last layer whose result is only summed, and it is gathered, too.
  const used = inputs.filter(
    (input) =>
      input.role === 'parameter' &&
      (positionsOf(input).length > 0 || reductions.has(input.tensor as Tensor)),
  );
  const boundary = Math.max(0, ...used.flatMap((input) => positionsOf(input).slice(0, 1)));
  const names = new Map<string, StepInput[]>();
  for (const input of used) {
    const name = groupOf(input.name);
    names.set(name, [...(names.get(name) ?? []), input]);
  }
  return [...names].map(([name, members]): Group => {
    const parameters = members.map((input) => shardedOf(input, ranks, reductions, owners));
    const at = members.flatMap(positionsOf);
    const reduced = parameters.flatMap(({ reduction }) =>
      reduction === null ? [] : [dependencies.positionOf(reduction)],
    );
    const before = at.filter((position) => position <= boundary);
    const forward = before.length === 0 ? [boundary] : before;
    const backward = [...at.filter((position) => position > boundary), ...reduced];
    return {
      name,
      parameters,
      bytes: parameters.reduce((sum, { bytes }) => sum + bytes, 0),
      forward: [Math.min(...forward), Math.max(...forward)],
      backward: backward.length === 0 ? null : [Math.min(...backward), Math.max(...backward)],
    };
  });
}

/** The collectives among all data ranks that reduce gradients, by parameter. */
function reductionsOf(gradients: readonly StepGradient[], ranks: number): Map<Tensor, Node> {
  const found = new Map<Tensor, Node>();
  for (const { owner, value } of gradients) {
    const node = value !== null && 'node' in value ? reductionOf(value.node) : null;
    const { group } = (node?.params ?? {}) as { group?: { size: number } };
    if (node !== null && group?.size === ranks) found.set(owner, node);
  }
  return found;
}

/** The positions of the nodes that read memory, and do not write any. */
function readersOf(graph: Graph, dependencies: Dependencies): Map<object, number[]> {
  const found = new Map<object, number[]>();
  graph.nodes.forEach((node, at) => {
    if (dependencies.writtenBy(node).size > 0) return;
    for (const memory of dependencies.readBy(node))
      found.set(memory, [...(found.get(memory) ?? []), at]);
  });
  return found;
}

function shardedOf(
  input: StepInput,
  ranks: number,
  reductions: ReadonlyMap<Tensor, Node>,
  owners: ReadonlySet<Tensor>,
): Sharded {
  const { shape, dtype } = input.node.metas[0] as ValueMeta;
  const [rows = 1, ...others] = shape;
  const numel = Math.ceil(rows / ranks) * ranks * others.reduce((a, b) => a * b, 1);
  const parameter = input.tensor as Tensor;
  return {
    input,
    bytes: numel * dtype.itemsize,
    hasGradient: owners.has(parameter),
    reduction: reductions.get(parameter) ?? null,
  };
}
