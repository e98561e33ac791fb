/** Fuses all-reduces: several small ones become one of their flattened inputs. */

import { Dependencies } from '../compile/graph/dependencies.js';
import type { Graph } from '../compile/graph/graph.js';
import type { Node, Value } from '../compile/graph/node.js';
import type { NodeValue } from '../compile/partition/value-map.js';
import { insertCalls } from '../compile/passes/insert-calls.js';
import { checkNumber } from '../core/options.js';
import { numelOf } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { cat } from '../ops/join.js';
import { type CommBlock, getAllCommBlocks } from './comm-block.js';
import { descendantsIn } from './graph-utils.js';
import { graphOptimizationPass, type PassTarget } from './pass-contract.js';

const MIB = 2 ** 20;
/** The first bucket is small, so that communication starts early. */
const FIRST_BUCKET_BYTES = MIB;

/** The name of fused collectives; the second one is `allReduceFused_1`. */
export const FUSED_NAME = 'allReduceFused';

/**
 * Fuses the all-reduces of a graph into buckets: their inputs are flattened and joined, reduced by
 * one all-reduce named `allReduceFused`, `allReduceFused_1`, and divided again. It starts behind
 * the last of its inputs, and is waited for at once: see {@link scheduleCommWait}. The first bucket
 * closes at 1 MiB, later ones at `bucketSizeMb` MiB. A bucket has tensors of one dtype, device,
 * group and reduction, none of which depends on another, nor on a bucket that waits for this one;
 * one that is alone stays as it is.
 *
 * @throws ArgumentError for a size that is no positive number
 * @see PyTorch `torch.distributed._spmd.graph_optimization.comm_fusion_with_concat`
 */
export const commFusionWithConcat: (module: PassTarget, bucketSizeMb: number) => void =
  graphOptimizationPass()(function commFusionWithConcat(
    module: PassTarget,
    bucketSizeMb: number,
  ): void {
    checkNumber('commFusionWithConcat', 'bucketSizeMb', bucketSizeMb, { above: 0 });
    const blocks = getAllCommBlocks(module.graph, 'allReduce').filter(isFusible);
    for (const bucket of bucketsOf(module.graph, blocks, bucketSizeMb * MIB))
      if (bucket.length > 1) fuse(module.graph, bucket);
  });

/** Whether the collective has one input that the graph computes, and is waited for once. */
const isFusible = ({ inputs, waitNodes }: CommBlock): boolean =>
  inputs.length === 1 && 'node' in (inputs[0] as Value) && waitNodes.length === 1;

const inputOf = ({ inputs }: CommBlock): NodeValue => inputs[0] as NodeValue;

/** What the blocks of a bucket have in common. */
function kindOf(block: CommBlock): readonly unknown[] {
  const { node, output } = inputOf(block);
  const { reduceOp, group } = block.commNode.params as { reduceOp: unknown; group: unknown };
  return [node.metas[output]?.dtype, node.metas[output]?.device, group, reduceOp];
}

function bytesOf(block: CommBlock): number {
  const { node, output } = inputOf(block);
  return numelOf(block.shape) * (node.metas[output]?.dtype.itemsize ?? 0);
}

interface Bucket {
  readonly kind: readonly unknown[];
  readonly blocks: CommBlock[];
  /** What follows from its results, also by way of other buckets. */
  readonly after: Set<Node>;
  bytes: number;
}

function bucketsOf(graph: Graph, blocks: readonly CommBlock[], bytes: number): CommBlock[][] {
  const { readers } = new Dependencies(graph);
  const closed: Bucket[] = [];
  const open: Bucket[] = [];
  const close = (bucket: Bucket): void => {
    closed.push(bucket);
    open.splice(open.indexOf(bucket), 1);
  };
  for (const block of blocks) {
    const kind = kindOf(block);
    const fitting = open.find((each) => each.kind.every((fact, i) => fact === kind[i]));
    const isLate = fitting?.after.has(block.commNode) ?? false;
    if (fitting !== undefined && isLate) close(fitting);
    const isNew = fitting === undefined || isLate;
    const bucket = isNew ? { kind, blocks: [], after: new Set<Node>(), bytes: 0 } : fitting;
    if (isNew) open.push(bucket);
    bucket.blocks.push(block);
    bucket.bytes += bytesOf(block);
    addReaders(bucket.after, block.waitNodes, readers);
    for (const other of [...closed, ...open])
      if (other !== bucket && bucket.blocks.some(({ commNode }) => other.after.has(commNode)))
        for (const node of bucket.after) other.after.add(node);
    if (bucket.bytes >= (closed.length === 0 ? FIRST_BUCKET_BYTES : bytes)) close(bucket);
  }
  return [...closed, ...open].map((bucket) => bucket.blocks);
}

/** Adds nodes, and all that follow from them. */
function addReaders(
  found: Set<Node>,
  nodes: readonly Node[],
  readers: (node: Node) => readonly Node[],
): void {
  const added = new Set(nodes);
  for (const node of added) {
    if (found.has(node)) continue;
    found.add(node);
    for (const reader of readers(node)) added.add(reader);
  }
}

function fuse(graph: Graph, bucket: readonly CommBlock[]): void {
  const inputs = bucket.map(inputOf);
  const last = Math.max(...inputs.map(({ node }) => graph.nodes.indexOf(node)));
  const early = usersBefore(graph, bucket, last);
  const next = graph.nodes[last + 1] as Node;
  const { commNode, waitNodes } = bucket[0] as CommBlock;
  const wait = waitNodes[0] as Node;
  const flat = (...tensors: readonly Tensor[]): Tensor[] => [
    cat(tensors.map((t) => t.reshape([-1]))),
  ];
  const { op, params, tags, mode } = commNode;
  const origin = { site: commNode.origin.site, path: sharedPath(bucket) };
  const like = { origin, tags, mode };
  const [joined] = insertCalls(graph, next, inputs, flat, like) as [NodeValue];
  const { metas } = joined.node;
  const common = { kind: 'call', origin, tags, metas } as const;
  const fused = graph.add({ ...common, name: FUSED_NAME, op, params, inputs: [joined] }, next);
  const waited = graph.add(
    {
      ...common,
      name: wait.name,
      op: wait.op,
      params: wait.params,
      inputs: [{ node: fused, output: 0 }],
    },
    next,
  );
  const whole = { node: waited, output: 0 };
  const chunks = insertCalls(graph, next, [whole], chunksOf(bucket), like);
  // Before the next node is erased, which may be a collective of the bucket.
  for (const node of early) graph.moveBefore(node, next);
  bucket.forEach((block, i) => {
    const [own] = block.waitNodes as [Node];
    graph.replaceUses({ node: own, output: 0 }, chunks[i] as Value);
    graph.erase(own);
    graph.erase(block.commNode);
  });
}

/** The innermost module that has the modules of all collectives of a bucket. */
function sharedPath(bucket: readonly CommBlock[]): string {
  const [first, ...others] = bucket.map(({ commNode }) => commNode.origin.path.split('.'));
  const differs = (part: string, i: number): boolean => others.some((path) => path[i] !== part);
  const length = (first as string[]).findIndex(differs);
  return (first as string[]).slice(0, length < 0 ? undefined : length).join('.');
}

/** What follows from the blocks before the last of their inputs: it must come after the bucket. */
function usersBefore(graph: Graph, bucket: readonly CommBlock[], last: number): Node[] {
  const waits = bucket.flatMap(({ waitNodes }) => waitNodes);
  const own = new Set([...waits, ...bucket.map(({ commNode }) => commNode)]);
  const isBefore = (node: Node): boolean => !own.has(node) && graph.nodes.indexOf(node) <= last;
  const users = waits.flatMap((wait) => graph.usersOf(wait));
  if (!users.some(isBefore)) return [];
  return descendantsIn(graph, waits).filter(isBefore);
}

/** Divides the joined result into the shapes of the inputs. */
const chunksOf =
  (bucket: readonly CommBlock[]) =>
  (joined: Tensor): Tensor[] => {
    let start = 0;
    return bucket.map(({ shape }) => {
      const length = numelOf(shape);
      const chunk = joined.narrow(0, start, length).view([...shape]);
      start += length;
      return chunk;
    });
  };
