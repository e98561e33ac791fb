/** Queries, keys and values as layers pack them into one tensor, and take them out of it. */
import assert from 'node:assert/strict';
import { profiler, type Tensor } from '../../lib/index.js';
import type { Operands } from './attention-operands.js';

export interface AttentionSizes {
  readonly batch: number;
  readonly length: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly depth: number;
}

export interface Packing {
  /** Whether keys and values may have fewer heads. */
  readonly isGrouped: boolean;
  readonly shape: (sizes: AttentionSizes) => number[];
  readonly split: (packed: Tensor, sizes: AttentionSizes) => Operands;
}

const isAll = (list: Tensor[]): Operands => list as Operands;
const byHead = (t: Tensor): Tensor => t.transpose(1, 2);

export const packings: Readonly<Record<string, Packing>> = {
  'unbind of thirds that are permuted to the front': {
    isGrouped: false,
    shape: ({ batch, length, heads, depth }) => [batch, length, 3 * heads * depth],
    split: (t, { batch, length, heads, depth }) =>
      isAll(t.view([batch, length, 3, heads, depth]).permute([2, 0, 3, 1, 4]).unbind(0)),
  },
  'chunks of the last dim': {
    isGrouped: false,
    shape: ({ batch, length, heads, depth }) => [batch, length, 3 * heads * depth],
    split: (t, { batch, length, heads, depth }) =>
      isAll(t.chunk(3, -1).map((each) => byHead(each.view([batch, length, heads, depth])))),
  },
  'unbind of the thirds of each head': {
    isGrouped: false,
    shape: ({ batch, length, heads, depth }) => [batch, length, heads, 3, depth],
    split: (t) => isAll(t.unbind(3).map(byHead)),
  },
  'chunks of the features of each head': {
    isGrouped: false,
    shape: ({ batch, length, heads, depth }) => [batch, length, heads, 3 * depth],
    split: (t) => isAll(byHead(t).chunk(3, -1)),
  },
  'selects of a first dim': {
    isGrouped: false,
    shape: ({ batch, length, heads, depth }) => [3, batch, heads, length, depth],
    split: (t) => [t.select(0, 0), t.select(0, 1), t.select(0, 2)],
  },
  'unbind of a first dim, time before batch': {
    isGrouped: false,
    shape: ({ batch, length, heads, depth }) => [3, length, batch, heads, depth],
    split: (t) => isAll(t.unbind(0).map((each) => each.permute([1, 2, 0, 3]))),
  },
  'a split of the last dim into grouped heads': {
    isGrouped: true,
    shape: ({ batch, length, heads, kvHeads, depth }) => [
      batch,
      length,
      (heads + 2 * kvHeads) * depth,
    ],
    split: (t, { batch, length, heads, kvHeads, depth }) =>
      isAll(
        t
          .split([heads * depth, kvHeads * depth, kvHeads * depth], -1)
          .map((each) => byHead(each.view([batch, length, -1, depth]))),
      ),
  },
  'a split of grouped heads': {
    isGrouped: true,
    shape: ({ batch, length, heads, kvHeads, depth }) => [
      batch,
      length,
      heads + 2 * kvHeads,
      depth,
    ],
    split: (t, { heads, kvHeads }) => isAll(byHead(t).split([heads, kvHeads, kvHeads], 1)),
  },
};

/** The number of calls of each op in `run`. */
export function opsOf(run: () => void): ReadonlyMap<string, number> {
  const prof = profiler.profile({ activities: ['cpu'] }, run);
  return new Map([...prof.keyAverages()].map(({ key, count }) => [key, count]));
}

/** Checks that a backward pass wrote the gradients of packed operands where they belong. */
export function assertJoined(ops: ReadonlyMap<string, number>): void {
  const counts = ['attentionBackwardJoined', 'copy', 'foreachCopy', 'add', 'empty'].map(
    (op) => ops.get(op) ?? 0,
  );
  assert.deepEqual(counts, [1, 0, 0, 0, 0], [...ops].join(' '));
}
