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
  const memory = new Memory(joint.graph);
  const partners = matched(first.joint, joint, halves, memory);
  const places = placesOf(first, partners);
  const placeOf = ({ node, output }: NodeValue): number | undefined => {
    const partner = partners.get(node);
    return partner === undefined ? undefined : places.get(keyOf({ node: partner, output }));
  };
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

/** The positions of the saved values, by the nodes that stand for theirs. */
function placesOf(
  { joint, partition }: Parameters<typeof otherBackward>[0],
  partners: ReadonlyMap<Node, Node>,
): Map<string, number> {
  const nodes = new Map(joint.graph.nodes.map((node) => [node.id, node]));
  return new Map(
    partition.saved.map(({ node: { id }, output }, i) => {
      const node = nodes.get(id) as Node;
      return [keyOf({ node: partners.get(node) ?? node, output }), i];
    }),
  );
}

/**
 * For nodes of the second graph the node of the first that computes the same: for those of forward,
 * and those of backward that need no tangent. Of several such nodes the first stands for all, and
 * the others of the first graph have it as partner, too.
 */
function matched(
  first: JointGraph,
  second: JointGraph,
  halves: Halves,
  memory: Memory,
): Map<Node, Node> {
  const partners = new Map<Node, Node>();
  for (const [i, node] of second.primals.entries()) partners.set(node, first.primals[i] as Node);
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
  const early: Node[] = [];
  for (const node of earlyNodes(known, new Memory(first.graph))) {
    const twin = early.find((each) => isPartner(node, each));
    if (twin === undefined) early.push(node);
    else partners.set(node, twin);
  }
  for (const node of earlyNodes(halves, memory)) {
    const partner = early.find((each) => isPartner(node, each));
    if (partner !== undefined) partners.set(node, partner);
  }
  return partners;
}

/** The nodes of backward that need no tangent, and whose operands and results nothing changes. */
function earlyNodes({ backward, dependent }: Halves, memory: Memory): Node[] {
  return backward.filter(
    (node) =>
      !dependent.has(node) &&
      memory.readsUnchanged(node) &&
      node.metas.every((_, output) => memory.writes({ node, output }) === 0),
  );
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
  const standsFor = (node: Node): Node => partners.get(node) ?? node;
  return standsFor(a.node) === standsFor(b.node) && a.output === b.output;
}

function otherTrace(node: Node): CompileError {
  return new CompileError(
    `partition: expected the function to be traced as before, got %${node.name}${originText(node)}`,
    { node: node.name },
  );
}
