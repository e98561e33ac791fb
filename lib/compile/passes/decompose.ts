/** Replaces calls by the simpler ops that their op's decomposition calls. */
import { noGrad } from '../../autograd/grad-mode.js';
import { setAutocast } from '../../core/autocast.js';
import type { AnyOp } from '../../core/op.js';
import { contiguousStrides, sameShape } from '../../core/shape.js';
import type { Tensor } from '../../core/tensor.js';
import { clone, copyRowMajor } from '../../ops/copy.js';
import { recording } from '../capture/levels.js';
import { Recorder } from '../capture/recorder.js';
import type { Graph } from '../graph/graph.js';
import type { Node, Value, ValueMeta } from '../graph/node.js';
import { isRandom } from '../graph/traits.js';
import { GuardCollector } from '../guards/guard-collector.js';
import { standIn } from '../partition/memory.js';
import { type NodeValue, ValueMap } from '../partition/value-map.js';
import { inlineCalls } from './inline.js';

/** Which calls to replace: those of some ops, or those that a function chooses. */
export type Decomposed = ReadonlySet<AnyOp> | ((node: Node) => boolean);

/** Whatever has a decomposition and is not faster as one kernel by far. @internal */
export const allButComputeBound = (node: Node): boolean =>
  !(node.op?.traits.includes('compute-bound') ?? true);

/**
 * Replaces calls by the calls that the decomposition of their op makes. These have new numbers, and
 * the origin, tags and grad mode of the replaced call.
 *
 * Calls stay that have no decomposition, that write into a tensor or draw random numbers, or whose
 * decomposition needs values of tensors or lays its results out differently.
 *
 * @returns the number of replaced calls
 * @see PyTorch `torch._decomp`
 */
export function decompose(graph: Graph, which: Decomposed = allButComputeBound): number {
  const chosen =
    typeof which === 'function' ? which : ({ op }: Node) => op !== null && which.has(op);
  const replacements = new ValueMap<Value>();
  const replaced = (value: Value): Value =>
    'number' in value ? value : (replacements.get(value) ?? value);
  const nodes = graph.nodes.splice(0);
  let count = 0;
  for (const node of nodes) {
    node.inputs = node.inputs.map(replaced);
    if (node.into !== null) node.into = replaced(node.into);
    const traced = isDecomposable(node) && chosen(node) ? trace(node) : null;
    if (traced === null) graph.nodes.push(node);
    else {
      count++;
      const outputs = inlineCalls(graph, traced.graph, traced.operands, node);
      for (const [output, value] of outputs.entries()) replacements.set({ node, output }, value);
    }
  }
  graph.outputs = graph.outputs.map(replaced);
  return count;
}

function isDecomposable(node: Node): boolean {
  const { kind, op, into, metas } = node;
  if (kind !== 'call' || op === null || op.decompose === null) return false;
  return into === null && op.mutates === null && !isRandom(node) && metas.length > 0;
}

/** A decomposition as a graph of its own. */
interface Traced {
  readonly graph: Graph;
  /** The value of the call that each placeholder stands for. */
  readonly operands: ReadonlyMap<Node, NodeValue>;
}

/** Runs a decomposition on tensors without memory. Null if it cannot stand for the call. */
function trace(node: Node): Traced | null {
  return noGrad(() => {
    const autocast = setAutocast(false);
    const recorder = new Recorder(new GuardCollector(), 'lowered');
    try {
      return recording(recorder, () => record(node, recorder));
    } catch (error) {
      if (recorder.broken !== null) return null;
      throw error;
    } finally {
      recorder.restore();
      setAutocast(autocast);
    }
  });
}

function record(node: Node, recorder: Recorder): Traced | null {
  const operands = new Map<Node, NodeValue>();
  const known = new ValueMap<Tensor>();
  const inputs = node.inputs.map((value) => {
    if ('number' in value) return value.number;
    let fake = known.get(value);
    if (fake === undefined) {
      fake = standIn(value.node.metas[value.output] as ValueMeta);
      known.set(value, fake);
      operands.set(recorder.placeholder(fake, operands.size), value);
    }
    return fake;
  });
  const decomposition = (node.op as AnyOp).decompose as NonNullable<AnyOp['decompose']>;
  const taken = new Set(inputs.map((t) => t.storage));
  const results: Tensor[] = [];
  for (const [i, result] of decomposition(inputs, node.params).entries()) {
    const own = fitted(result, node.metas[i] as ValueMeta, taken);
    if (own === null) return null;
    taken.add(own.storage);
    results.push(own);
  }
  if (results.length !== node.metas.length) return null;
  recorder.graph.outputs = results.map((t) => recorder.valueOf(t));
  return { graph: recorder.graph, operands };
}

/** The result in the layout of the call's, on memory of its own; null if it has another dtype. */
function fitted(result: Tensor, meta: ValueMeta, taken: ReadonlySet<unknown>): Tensor | null {
  if (result.dtype !== meta.dtype || !sameShape(result.sizes, meta.shape)) return null;
  const own = taken.has(result.storage) ? clone(result) : result;
  if (sameShape(own.strides, meta.strides)) return own;
  return sameShape(meta.strides, contiguousStrides(meta.shape)) ? copyRowMajor(own) : null;
}
