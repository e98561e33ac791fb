/** The common part of losses: checks of operands, and the reduction of element losses. */
import { callSite } from '../core/call-site.js';
import { bool, promoteTypes } from '../core/dtype.js';
import { ArgumentError, DtypeError, ShapeError } from '../core/errors.js';
import { shown } from '../core/options.js';
import { broadcastShapes, formatShape, sameShape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { requirePair } from './operand.js';

/** The reduction of element losses: none, mean or sum. */
export type LossReduction = 'none' | 'mean' | 'sum';

/** Options of losses of elements. */
export interface LossOptions {
  /** `'mean'` by default, over all elements of the broadcast shape. */
  reduction?: LossReduction;
}

/** @throws ArgumentError for an unknown reduction. @internal */
export function checkReduction(op: string, reduction: LossReduction): void {
  if (reduction !== 'none' && reduction !== 'mean' && reduction !== 'sum')
    throw new ArgumentError(
      `${op}: reduction must be 'none', 'mean' or 'sum', got ${shown(reduction)}`,
      { op, reduction },
    );
}

/** @throws ShapeError unless input and target have one shape. @internal */
export function requireSameShape(op: string, input: Tensor, target: Tensor): void {
  if (sameShape(input.sizes, target.sizes)) return;
  throw new ShapeError(
    `${op}: expected a target in the shape of the input, ${formatShape(input.sizes)}, got ` +
      `${formatShape(target.sizes)}`,
    {
      op,
      shapes: [input.sizes, target.sizes],
    },
  );
}

/**
 * Checks an input and a target that broadcast. @throws ArgumentError, ShapeError, DtypeError
 * @internal
 */
export function checkPair(
  op: string,
  input: Tensor,
  target: Tensor,
  reduction: LossReduction,
  argument = 'target',
): void {
  requirePair(input, target, op, argument);
  checkReduction(op, reduction);
  const common = promoteTypes(input.dtype, target.dtype);
  if (!common.isFloatingPoint && (reduction === 'mean' || common === bool))
    throw new DtypeError(
      `${op}: expected floating point tensors, got ${input.dtype.name} and ` +
        `${target.dtype.name}; convert one with .float()`,
      { op },
    );
}

/** Places of the program that were warned. */
const warned = new Set<string>();

/**
 * Warns once at each place of the program that gives a loss a target in another shape: `[4, 1]` and
 * `[4]` broadcast to `[4, 4]`, and the loss compares each prediction with every target.
 *
 * @throws ShapeError if the shapes do not broadcast
 * @see PyTorch `torch.nn.functional.mse_loss`, which warns, too
 * @internal
 */
export function warnOfBroadcast(op: string, input: Tensor, target: Tensor): void {
  if (sameShape(input.sizes, target.sizes)) return;
  const [x, y] = [formatShape(input.sizes), formatShape(target.sizes)];
  const shape = formatShape(broadcastShapes(input.sizes, target.sizes, op));
  const site = callSite();
  if (warned.has(site)) return;
  warned.add(site);
  process.emitWarning(
    `${op}: expected a target in the shape of the input, ${x}, got ${y}; both broadcast to ` +
      `${shape}. Use target.reshape(input.shape), or expand the target to say that this is meant` +
      `${site === '' ? '' : `. At ${site}`}`,
    'BroadcastWarning',
  );
}

/** Reduces element losses: returns them, their sum, or their mean. @internal */
export function reduceElements(losses: Tensor, reduction: LossReduction): Tensor {
  return reduction === 'none' ? losses : reduction === 'sum' ? losses.sum() : losses.mean();
}
