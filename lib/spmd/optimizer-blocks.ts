/** The parts of a graph that update parameters: a count of steps, and one call for many of them. */

import { Dependencies } from '../compile/graph/dependencies.js';
import type { Graph } from '../compile/graph/graph.js';
import type { Node, Value } from '../compile/graph/node.js';
import type { NodeValue } from '../compile/partition/value-map.js';
import { parseOperands } from '../core/operands.js';
import { checkTarget, type PassTarget } from './pass-contract.js';

/** The operands of a call that takes lists of tensors, by the name of the list. */
export type OperandLists = ReadonlyMap<string, readonly Value[]>;

/** An optimizer step on many parameters at once, and the call that counts it. */
export interface FusedOptimizerBlock {
  /** The call that counts the steps; its node is null for optimizers without a count. */
  readonly step: { readonly addNode: Node | null };
  /** The call that writes the parameters. */
  readonly optim: {
    readonly optimNode: Node;
    /** Its operands: `params`, `grads`, and lists of state. */
    readonly lists: OperandLists;
  };
}

/** Operands of a call that belong together: a list, or one operand. */
interface OperandList {
  readonly name: string;
  readonly isList: boolean;
  readonly start: number;
  readonly values: readonly Value[];
}

function operandListsOf({ op, inputs, params }: Node): OperandList[] {
  if (op === null || op.operands === null) return [];
  let start = 0;
  return parseOperands(op.operands, op.name).inputs.map(({ name, count }) => {
    const length = count === null ? 1 : ((params as Record<string, number>)[count] as number);
    const values = inputs.slice(start, start + length);
    start += length;
    return { name, isList: count !== null, start: start - length, values };
  });
}

/** The operands of a node, by the name of their list. */
export const listsOf = (node: Node): OperandLists =>
  new Map(operandListsOf(node).map(({ name, values }) => [name, values]));

/** Adds the same call on the operands at some positions of its lists, in front of it. */
export function callOnPart(graph: Graph, node: Node, positions: readonly number[]): Node {
  const inputs = operandListsOf(node).flatMap(({ isList, values }) =>
    isList ? positions.map((i) => values[i] as Value) : values,
  );
  const { kind, op, params, metas, origin, tags } = node;
  const count = { ...params, count: positions.length };
  return graph.add(
    { kind, name: op?.name ?? '', op, params: count, inputs, metas, origin, tags },
    node,
  );
}

/** Whether a call writes a list of parameters by a list of their gradients. */
function optimizerLists(node: Node): OperandLists | null {
  if (node.op?.mutates == null) return null;
  const lists = listsOf(node);
  return lists.has('params') && lists.has('grads') ? lists : null;
}

/**
 * The optimizer steps of a graph, in order: calls that write a list of parameters by a list of
 * gradients. With `op`, such as `'adamStepCapturable'`, those of one op.
 *
 * @throws ArgumentError for what has no graph
 * @see PyTorch `torch.distributed._spmd.graph_optimization.get_all_fused_optimizer_blocks`
 */
export function getAllFusedOptimizerBlocks(module: PassTarget, op?: string): FusedOptimizerBlock[] {
  checkTarget('getAllFusedOptimizerBlocks', module);
  const { graph } = module;
  const dependencies = new Dependencies(graph);
  return graph.nodes.flatMap((optimNode) => {
    const lists = optimizerLists(optimNode);
    if (lists === null || (op !== undefined && optimNode.op?.name !== op)) return [];
    const addNode = countOf(graph.nodes, optimNode, lists, dependencies);
    return [{ step: { addNode }, optim: { optimNode, lists } }];
  });
}

/** The last call before the step that writes its counts, and nothing else. */
function countOf(
  nodes: readonly Node[],
  optimNode: Node,
  lists: OperandLists,
  dependencies: Dependencies,
): Node | null {
  const steps = (lists.get('steps') ?? []).filter((v): v is NodeValue => 'node' in v);
  const counted = new Set(steps.map((value) => dependencies.memoryOf(value)));
  const before = nodes.slice(0, nodes.indexOf(optimNode));
  const found = before.findLast((node) => {
    const written = dependencies.writtenBy(node);
    return written.size > 0 && [...written].every((memory) => counted.has(memory));
  });
  return found ?? null;
}
