/**
 * The backward graph of another pass over a function that was partitioned already: what forward
 * saves is decided, and the pass gets it from there.
 */
import { CompileError } from '../../core/errors.js';
import type { Graph } from '../graph/graph.js';
import { originText } from '../graph/lint.js';
import type { Node, Value } from '../graph/node.js';
import { isSameStep } from '../graph/same-step.js';
import { backwardGraph, planBackward } from './extract.js';
import { type Halves, halvesOf, type JointGraph, type Partition } from './joint-graph.js';
import { isAlias, Memory } from './memory.js';
import type { NodeValue } from './value-map.js';

/** A backward graph that takes some of the saved values of a partition, then its tangents. */
export interface OtherBackward {
  readonly backward: Graph;
  /** The positions of the values that it takes, among those that forward saves. */
  readonly saved: readonly number[];
}

/**
 * The backward graph of `joint`, which is another trace of the function whose partition is given.
 * `tangents`: those of its tangents that the pass has.
 *
 * @throws CompileError if forward was traced otherwise, or did not save what the pass reads
 * @internal
 */
export function otherBackward(
  first: { readonly joint: JointGraph; readonly partition: Partition },
  joint: JointGraph,
  tangents: readonly Node[],
): OtherBackward {
  const halves = halvesOf(joint);
  const partners = matched(first.joint, joint, halves);
  const places = new Map(first.partition.saved.map((value, i) => [keyOf(value), i]));
  const placeOf = ({ node, output }: NodeValue): number | undefined => {
    const partner = partners.get(node);
    return partner === undefined ? undefined : places.get(keyOf({ node: partner, output }));
  };
  const memory = new Memory(joint.graph, joint.shared);
  const isSaved = (value: NodeValue): boolean => placeOf(value) !== undefined;
  const plan = planBackward(joint, halves, memory, { saves: isSaved, savesEarly: isSaved });
  const repeated = new Set(first.partition.backward.nodes.map(({ id }) => id));
  const ofForward = new Set(halves.forward);
  for (const node of plan.nodes) {
    const isNew = !repeated.has((partners.get(node) as Node | undefined)?.id ?? -1);
    if (isNew && ofForward.has(node) && !isAlias(node) && node.kind !== 'constant')
      throw notSaved(node);
  }
  return {
    backward: backwardGraph({ ...joint, tangents }, plan, plan.saved),
    saved: plan.saved.map((value) => placeOf(value) as number),
  };
}

const keyOf = ({ node, output }: { node: Node; output: number }): string => `${node.id}.${output}`;

function notSaved(node: Node): CompileError {
  return new CompileError(
    `partition: backward needs %${node.name} of forward${originText(node)}, which was not saved`,
    { node: node.name },
  );
}

/**
 * For nodes of the second graph the node of the first that computes the same: for those of forward,
 * and those of backward that need no tangent.
 */
function matched(first: JointGraph, second: JointGraph, halves: Halves): Map<Node, Node> {
  const partners = new Map<Node, Node>();
  const pair = (a: readonly Node[], b: readonly Node[]): void => {
    for (const [i, node] of b.entries()) partners.set(node, a[i] as Node);
  };
  pair(first.primals, second.primals);
  const known = halvesOf(first);
  const isPartner = (node: Node, of: Node): boolean =>
    isSameStep(node, of) && sameOperands(node.reads, of.reads, partners);
  let at = 0;
  for (const node of halves.forward) {
    if (node.kind === 'placeholder') continue;
    // Passes may have removed nodes that only the first pass needs.
    while (at < known.forward.length && !isPartner(node, known.forward[at] as Node)) at++;
    const partner = known.forward[at++];
    if (partner === undefined) throw otherTrace(node);
    partners.set(node, partner);
  }
  const early = known.backward.filter((node) => !known.dependent.has(node));
  for (const node of halves.backward) {
    const partner = halves.dependent.has(node)
      ? undefined
      : early.find((each) => isPartner(node, each));
    if (partner !== undefined) partners.set(node, partner);
  }
  return partners;
}

function sameOperands(
  a: readonly Value[],
  b: readonly Value[],
  partners: ReadonlyMap<Node, Node>,
): boolean {
  return a.length === b.length && a.every((value, i) => isSame(value, b[i] as Value, partners));
}

function isSame(a: Value, b: Value, partners: ReadonlyMap<Node, Node>): boolean {
  if ('number' in a || 'number' in b)
    return (
      'number' in a &&
      'number' in b &&
      a.number.dtype === b.number.dtype &&
      Object.is(a.number.scalarValue, b.number.scalarValue)
    );
  return partners.get(a.node) === b.node && a.output === b.output;
}

function otherTrace(node: Node): CompileError {
  return new CompileError(
    `partition: expected the function to be traced as before, got %${node.name}${originText(node)}`,
    { node: node.name },
  );
}
