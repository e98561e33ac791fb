/** Makes the tensors of the program that a captured step uses inputs of its graph. */
import type { Tensor } from '../../core/tensor.js';
import type { Recorder } from '../capture/recorder.js';
import type { Graph } from '../graph/graph.js';
import type { Node, Value } from '../graph/node.js';
import type { StepNames, StepRole } from './names.js';

/** An input of the graph of a step. */
export interface StepInput {
  /** The placeholder. */
  readonly node: Node;
  /** What the tensor is to the program. */
  readonly role: StepRole;
  /** `0.weight`, `exp_avg of 0.weight`, `lr of group 0 of Adam`, `argument 0`. */
  readonly name: string;
  /** The position among the tensors of the arguments; -1 for other roles. */
  readonly argument: number;
  /** The tensor of the program; null for arguments, which each call gives. */
  readonly tensor: Tensor | null;
  /** The parameter that the state belongs to; null for other roles. */
  readonly parameter: Tensor | null;
  /** Whether the graph gets a distributed tensor itself, for an effect, and not its local shard. */
  readonly isWhole: boolean;
}

const ROLES: readonly StepRole[] = [
  'argument',
  'parameter',
  'buffer',
  'state',
  'rate',
  'gradient',
  'other',
];

/**
 * Makes inputs of constants that the program has; tensors that the step itself wrote as numbers
 * stay constants. Inputs come first in the graph: arguments, then parameters, buffers and state.
 */
export function liftConstants(recorder: Recorder, names: StepNames): StepInput[] {
  const { graph, guards } = recorder;
  const users = graph.allUsers();
  const originals = new Map([...recorder.distributed].map(([t, local]) => [local, t]));
  const results = new Set(graph.outputs.flatMap((v) => ('node' in v ? [v.node] : [])));
  const inputs: StepInput[] = [];
  const placeholders = new Map<Node, Node>();
  let argument = 0;
  for (const node of [...graph.nodes]) {
    if (node.kind === 'placeholder') {
      const name = `argument ${argument}`;
      inputs.push({ ...plain, node, role: 'argument', name, argument: argument++ });
    }
    if (node.kind !== 'constant' || node.tensor === null) continue;
    const tensor = originals.get(node.tensor) ?? node.tensor;
    if (!guards.constantTensors.has(tensor)) continue;
    if ((users.get(node)?.length ?? 0) === 0 && !results.has(node)) graph.erase(node);
    else {
      const input = lifted(recorder, node, tensor, names);
      placeholders.set(node, input.node);
      inputs.push(input);
    }
  }
  replaceNodes(graph, placeholders);
  const order = (input: StepInput): number => ROLES.indexOf(input.role);
  inputs.sort((a, b) => order(a) - order(b));
  const first = new Set(inputs.map(({ node }) => node));
  const others = graph.nodes.filter((node) => !first.has(node));
  graph.nodes.splice(0, graph.nodes.length, ...first, ...others);
  return inputs;
}

/** Puts nodes in the place of others, in one pass: a step has thousands of constants. */
function replaceNodes(graph: Graph, by: ReadonlyMap<Node, Node>): void {
  const replaced = (value: Value): Value => {
    const other = 'node' in value ? by.get(value.node) : undefined;
    return other === undefined ? value : { node: other, output: 0 };
  };
  for (const node of graph.nodes) {
    node.inputs = node.inputs.map(replaced);
    if (node.into !== null) node.into = replaced(node.into);
  }
  graph.outputs = graph.outputs.map(replaced);
  const kept = graph.nodes.filter((node) => !by.has(node));
  graph.nodes.splice(0, graph.nodes.length, ...kept);
}

const plain = { tensor: null, parameter: null, isWhole: false } as const;

function lifted(recorder: Recorder, node: Node, tensor: Tensor, names: StepNames): StepInput {
  const { graph } = recorder;
  const named = names.of(tensor);
  const name = named?.name ?? 'a tensor from outside';
  const fields = { name: named?.role ?? 'lift', metas: node.metas, params: { name } };
  const placeholder = graph.add({ kind: 'placeholder', ...fields }, node);
  return {
    node: placeholder,
    role: named?.role ?? 'other',
    name,
    argument: -1,
    tensor: named?.tensor ?? tensor,
    parameter: named?.parameter ?? null,
    isWhole: tensor.sharding !== null,
  };
}
