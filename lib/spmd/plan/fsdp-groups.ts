/** The groups of parameters that fully sharded data parallelism gathers and reduces together. */

import type { Dependencies } from '../../compile/graph/dependencies.js';
import type { Graph } from '../../compile/graph/graph.js';
import type { Node, ValueMeta } from '../../compile/graph/node.js';
import type { StepGradient } from '../../compile/step/gradients.js';
import type { StepInput } from '../../compile/step/lifts.js';
import type { DType } from '../../core/dtype.js';
import { sameShape } from '../../core/shape.js';
import type { Tensor } from '../../core/tensor.js';
import { type DataRanks, scopeOf } from './data-ranks.js';
import { reductionOf, type StepParts } from './memory.js';

/** A sharded parameter. */
export interface Sharded {
  readonly input: StepInput;
  /** Elements of the whole parameter, with rows that make all shards equal. */
  readonly numel: number;
  readonly hasGradient: boolean;
  /** The collectives that reduce its gradient among ranks with other data, from the last one. */
  readonly reductions: readonly Node[];
}

/** Parameters that are gathered together. */
export interface Group {
  readonly name: string;
  readonly parameters: readonly Sharded[];
  /** Bytes of the whole parameters as they are gathered, and of their gradients as reduced. */
  readonly bytes: number;
  readonly gradientBytes: number;
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
  data: DataRanks,
  groupOf: (name: string) => string,
): Group[] {
  const reductions = reductionsOf(gradients, data);
  const owners = new Set(gradients.flatMap(({ owner, value }) => (value === null ? [] : [owner])));
  const readers = readersOf(graph, dependencies);
  const casts = castsOf(graph, data);
  const positionsOf = ({ node }: StepInput): number[] =>
    [node, ...(casts.get(node) ?? [])].flatMap(
      (each) => readers.get(dependencies.memoryOf({ node: each, output: 0 })) ?? [],
    );
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
    const parameters = members.map((input) => shardedOf(input, data, reductions, owners));
    const reduced = parameters.flatMap((each) => each.reductions.map(dependencies.positionOf));
    return {
      name,
      parameters,
      ...bytesOf(parameters, data),
      ...spansOf(members.flatMap(positionsOf), reduced, boundary),
    };
  });
}

/** Where a group is used: in forward, up to the last first use of any parameter, and behind it. */
function spansOf(
  at: readonly number[],
  reduced: readonly number[],
  boundary: number,
): Pick<Group, 'forward' | 'backward'> {
  const before = at.filter((position) => position <= boundary);
  const forward = before.length === 0 ? [boundary] : before;
  const backward = [...at.filter((position) => position > boundary), ...reduced];
  const span = (list: readonly number[]): readonly [number, number] => [
    Math.min(...list),
    Math.max(...list),
  ];
  return { forward: span(forward), backward: backward.length === 0 ? null : span(backward) };
}

function bytesOf(
  parameters: readonly Sharded[],
  { paramDtype, reduceDtype }: DataRanks,
): Pick<Group, 'bytes' | 'gradientBytes'> {
  const sum = (list: readonly Sharded[], dtype: DType | null): number =>
    list.reduce((bytes, { input, numel }) => {
      const own = (input.node.metas[0] as ValueMeta).dtype;
      return bytes + numel * (dtype ?? own).itemsize;
    }, 0);
  const trained = parameters.filter(({ hasGradient }) => hasGradient);
  return {
    bytes: sum(parameters, paramDtype),
    gradientBytes: sum(trained, reduceDtype ?? paramDtype),
  };
}

/** The collectives among ranks with other data that reduce gradients, by parameter. */
function reductionsOf(
  gradients: readonly StepGradient[],
  data: DataRanks,
): Map<Tensor, readonly Node[]> {
  const found = new Map<Tensor, readonly Node[]>();
  for (const { owner, value } of gradients) {
    const chain: Node[] = [];
    for (let at = value; at != null && 'node' in at; ) {
      const node = reductionOf(at.node);
      if (node !== null && scopeOf(node, data) !== 'tensor') chain.push(node);
      at = node?.inputs[0] ?? null;
    }
    if (chain.length > 0) found.set(owner, chain);
  }
  return found;
}

/** The copies of parameters in the dtype in which they are gathered, as autocast makes them. */
export function castsOf(graph: Graph, { paramDtype }: DataRanks): Map<Node, Node[]> {
  const casts = new Map<Node, Node[]>();
  if (paramDtype === null) return casts;
  for (const node of graph.nodes) {
    const [input] = node.inputs;
    if (node.into !== null || input === undefined || !('node' in input)) continue;
    const [from, to] = [input.node.metas[input.output], node.metas[0]];
    const isCast =
      input.node.kind !== 'call' && to?.dtype === paramDtype && from?.dtype !== paramDtype;
    if (isCast && from !== undefined && sameShape(from.shape, to.shape))
      casts.set(input.node, [...(casts.get(input.node) ?? []), node]);
  }
  return casts;
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
  { ranks }: DataRanks,
  reductions: ReadonlyMap<Tensor, readonly Node[]>,
  owners: ReadonlySet<Tensor>,
): Sharded {
  const [rows = 1, ...others] = (input.node.metas[0] as ValueMeta).shape;
  const parameter = input.tensor as Tensor;
  return {
    input,
    numel: Math.ceil(rows / ranks) * ranks * others.reduce((a, b) => a * b, 1),
    hasGradient: owners.has(parameter),
    reductions: reductions.get(parameter) ?? [],
  };
}
