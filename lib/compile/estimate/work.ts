/** How much work a node of a graph is: floating-point operations, bytes in memory, bytes sent. */

import type { CollectiveCall, CollectiveGroup } from '../../core/collective.js';
import type { CommandWriter } from '../../core/command.js';
import { contiguousStrides, numelOf } from '../../core/shape.js';
import type { Tensor } from '../../core/tensor.js';
import { trafficOf } from '../../core/traffic.js';
import type { Node, Value, ValueMeta } from '../graph/node.js';
import { isCollective, isView, isWait } from '../graph/traits.js';
import { bytesOf, standIn, standIns, writtenValues } from '../partition/memory.js';

/** The work of a kernel. */
export interface ComputeWork {
  /** Floating-point operations of products; 0 for nodes that only move memory. */
  readonly flops: number;
  /** The dtype of its first result. */
  readonly dtype: string;
  /** Bytes read and written. */
  readonly bytes: number;
}

/** The work of a collective. */
export interface CommunicationWork {
  /** The ranks of the group. */
  readonly ranks: number;
  /** The mesh dimension of the group, or the name of a group that has none. */
  readonly along: string;
  /** Bytes that this rank sends. */
  readonly sentBytes: number;
}

/** Products declare an eighth of their multiplications as operations; each has two of these. */
const FLOPS_AN_OPERATION = 16;

/** The work of a node on this rank; null for one that runs nothing: inputs, views, waits. */
export function computeWork(node: Node): ComputeWork | null {
  const { op } = node;
  if (op === null || runsNothing(node)) return null;
  const metas = node.inputs.map(metaOfValue);
  const bytes = [...metas, ...node.metas, ...writtenBeside(node)].reduce(
    (sum, meta) => sum + (meta === null ? 0 : bytesOf(meta)),
    0,
  );
  const isProduct = op.traits.includes('compute-bound');
  const present = metas.find((meta) => meta !== null) ?? null;
  // A product runs at the rate of its operands, whatever it writes.
  const first = (isProduct ? present : null) ?? node.metas[0] ?? present;
  return {
    flops: isProduct ? FLOPS_AN_OPERATION * operationsOf(node) : 0,
    dtype: first?.dtype.name ?? 'float32',
    bytes,
  };
}

/**
 * Whether a rank has nothing to compute for the node: an input, a view, a wait, unwritten memory.
 */
export const runsNothing = (node: Node): boolean =>
  node.op === null || isView(node) || isWait(node) || isFree(node);

/** Memory that is allocated and not written. */
const isFree = ({ op, into }: Node): boolean =>
  into === null && (op?.traits.includes('uninitialized') ?? false);

const metaOfValue = (value: Value): ValueMeta | null =>
  'number' in value ? null : (value.node.metas[value.output] ?? null);

/** What the node writes that is none of its results: the operands of an optimizer's step. */
function writtenBeside(node: Node): (ValueMeta | null)[] {
  return node.into === null && node.op?.mutates != null ? writtenValues(node).map(metaOfValue) : [];
}

/** What the op declares as its cost, when it writes its command; strides do not change it. */
function operationsOf(node: Node): number {
  let operations = 0;
  const count: Pick<CommandWriter, 'cost'> = {
    cost: (given) => {
      operations = given;
    },
  };
  const ignored = (): void => {};
  const writer = new Proxy(count, {
    get: (target, key) => (key === 'cost' ? target.cost : ignored),
  }) as CommandWriter;
  node.op?.lower?.(
    writer,
    node.inputs.map((value) => ('number' in value ? value.number : denseStandIn(value))),
    node.metas.map((_, output) => denseStandIn({ node, output })),
    node.params,
  );
  return operations;
}

const denseStandIn = ({ node, output }: { node: Node; output: number }): Tensor => {
  const meta = node.metas[output] as ValueMeta;
  return standIn({ ...meta, strides: contiguousStrides(meta.shape) });
};

/** Sizes that collectives have among their parameters. */
interface CollectiveParams {
  readonly group: CollectiveGroup & { readonly meshDim?: string | null };
  readonly rows?: readonly number[];
  readonly inputRows?: readonly number[];
  readonly outputRows?: readonly number[];
  readonly root?: number;
  /** The dim of the rows; 0 by default. */
  readonly dim?: number;
}

/** How {@link communicationWork} reads a node. */
export interface CommunicationOptions {
  /** As if the group had another size, with as much data on each rank; null for its own. */
  readonly ranks?: number | null;
  /** The waits for the result, from which the bytes of an op of the program follow. */
  readonly waits?: readonly Node[];
  /** Counts the bytes of the rank that sends most, so that all ranks count the same. */
  readonly byLargest?: boolean;
}

/** The work of a node that starts communication. */
export function communicationWork(
  node: Node,
  { ranks = null, waits = [], byLargest = false }: CommunicationOptions = {},
): CommunicationWork {
  if (!isCollective(node)) return workOfProgram(node, waits);
  const params = node.params as CollectiveParams;
  const { group, rows, inputRows, outputRows, root, dim = 0 } = params;
  const [input] = standIns(node) as [Tensor];
  const size = ranks ?? group.size;
  const rowSize = numelOf(input.sizes.filter((_, i) => i !== dim));
  const counts = (list: readonly number[] | undefined): { counts: number[] } | object =>
    list === undefined ? {} : { counts: resized(list, size).map((n) => n * rowSize) };
  const call = {
    kind: node.op?.name,
    input,
    output: null,
    ...counts(rows ?? outputRows),
    ...(inputRows === undefined
      ? {}
      : { sendCounts: resized(inputRows, size).map((n) => n * rowSize) }),
    ...(root === undefined ? {} : { root }),
  } as CollectiveCall;
  const sentBy = (rank: number): number => trafficOf(call, size, rank).sent;
  const sentBytes = byLargest
    ? Math.max(...Array.from({ length: size }, (_, rank) => sentBy(rank)))
    : sentBy(group.rank % size);
  return { ranks: size, along: group.meshDim ?? group.name, sentBytes };
}

/**
 * The work of an op of the program that communicates: that of a gather or a reduction between its
 * operands, apart from memory that it manages, and what the waits return.
 */
function workOfProgram(node: Node, waits: readonly Node[]): CommunicationWork {
  const sum = (metas: readonly (ValueMeta | null)[]): number =>
    metas.reduce((bytes, meta) => bytes + (meta === null ? 0 : bytesOf(meta)), 0);
  const managed = new Set(node.op?.manages?.(node.params) ?? []);
  const given = sum(node.inputs.filter((_, i) => !managed.has(i)).map(metaOfValue));
  const returned = sum((waits.length > 0 ? waits : [node]).flatMap(({ metas }) => metas));
  const [most, least] = [Math.max(given, returned), Math.min(given, returned)];
  const ranks = least === 0 ? 2 : Math.max(2, Math.round(most / least));
  return { ranks, along: node.op?.name ?? '', sentBytes: (most * (ranks - 1)) / ranks };
}

/** The rows of each rank, if there were more or fewer ranks: the same number in all. */
function resized(rows: readonly number[], size: number): readonly number[] {
  if (rows.length === size) return rows;
  const total = rows.reduce((a, b) => a + b, 0);
  return Array.from({ length: size }, () => total / size);
}
