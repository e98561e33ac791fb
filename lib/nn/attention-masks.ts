/**
 * Attention masks of layers, as in PyTorch's layers: a bool mask leaves out the positions that are
 * true, a floating mask is added to the scores.
 */
import { bool } from '../core/dtype.js';
import { DtypeError, ShapeError } from '../core/errors.js';
import { checkFlag } from '../core/options.js';
import { formatShape, type Shape, sameShape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { causalMask } from '../ops/attention-weights.js';
import { requireTensor } from '../ops/operand.js';
import { where } from '../ops/where.js';

/** @throws ArgumentError unless masks are tensors or null, and flags true or false */
export function checkMaskTypes(
  op: string,
  masks: Readonly<Record<string, unknown>>,
  flags: Readonly<Record<string, unknown>>,
): void {
  for (const name in masks) if (masks[name] !== null) requireTensor(masks[name], op, name);
  for (const name in flags) checkFlag(op, name, flags[name]);
}

/** Masks of one call of a layer; `batched` is false for one sequence without a batch dim. */
export interface Masks {
  attnMask: Tensor | null;
  keyPaddingMask: Tensor | null;
  batched: boolean;
}

/** Queries `[N, H, S, D]` and keys `[N, H, T, D]`. */
interface Heads {
  q: Tensor;
  k: Tensor;
}

interface Expected {
  shapes: readonly Shape[];
  /** The sizes in words. */
  meaning: string;
}

/** @throws ShapeError, DtypeError */
function checkMask(op: string, name: string, mask: Tensor, { shapes, meaning }: Expected): void {
  if (mask.dtype !== bool && !mask.dtype.isFloatingPoint) {
    const message =
      `${op}: expected ${name} to be bool (true: leave out) or floating (added to the scores), ` +
      `got ${mask.dtype.name}; if 1 means leave out, pass mask.ne(0)`;
    throw new DtypeError(message, { op, argument: name, dtype: mask.dtype.name });
  }
  if (shapes.some((shape) => sameShape(shape, mask.sizes))) return;
  const message =
    `${op}: expected ${name} of shape ${shapes.map(formatShape).join(' or ')}, ${meaning}, got ` +
    `${formatShape(mask.sizes)}; expand or reshape it to that`;
  throw new ShapeError(message, { op, argument: name, shape: mask.sizes });
}

function checkMasks(
  op: string,
  { attnMask, keyPaddingMask, batched }: Masks,
  [n, h, s, t]: readonly [number, number, number, number],
): void {
  const meaning = batched
    ? '[queries, keys] or [batch * heads, queries, keys]'
    : '[queries, keys] or [heads, queries, keys]';
  const rows = [s, t];
  if (attnMask !== null)
    checkMask(op, 'attnMask', attnMask, { shapes: [rows, [n * h, ...rows]], meaning });
  if (keyPaddingMask !== null)
    checkMask(op, 'keyPaddingMask', keyPaddingMask, {
      shapes: [batched ? [n, t] : [t]],
      meaning: batched ? '[batch, keys]' : '[keys]',
    });
}

/**
 * Merges both masks and a causal one into one that broadcasts to the scores `[N, H, S, T]`. It is
 * bool (true: attend) if both masks are, as the fused kernels read it, else floating and added.
 *
 * @throws ShapeError, DtypeError if a mask does not fit
 */
export function mergedMask(
  op: string,
  masks: Masks,
  causal: boolean,
  { q, k }: Heads,
): Tensor | null {
  const [n, h, s] = q.sizes as [number, number, number];
  const t = k.sizes[2] as number;
  checkMasks(op, masks, [n, h, s, t]);
  const { attnMask, keyPaddingMask } = masks;
  const spread = attnMask?.reshape(attnMask.ndim === 2 ? [1, 1, s, t] : [n, h, s, t]);
  const padding = keyPaddingMask?.reshape([n, 1, 1, t]);
  const given = [spread, padding].filter((mask) => mask !== undefined);
  const visible = given.filter((mask) => mask.dtype === bool).map((mask) => mask.logicalNot());
  if (causal) visible.push(causalMask(q, [s, t]));
  const seen = visible.length === 0 ? null : visible.reduce((a, b) => a.logicalAnd(b));
  const floating = given.filter((mask) => mask.dtype !== bool).map((mask) => mask.to(q.dtype));
  if (floating.length === 0) return seen;
  const added = floating.reduce((a, b) => a.add(b));
  return seen === null ? added : where(seen, added, Number.NEGATIVE_INFINITY);
}
