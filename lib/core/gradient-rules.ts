/** The types of gradient rules: what they get and return. */
import type { Device } from './device.js';
import type { DType } from './dtype.js';
import type { Shape } from './shape.js';
import type { Tensor } from './tensor.js';

/** The forward call as its gradient rule sees it. */
export interface VjpContext<P> {
  readonly params: P;
  /** Whether input `i` needs a gradient; a rule returns null for the others. */
  needs(i: number): boolean;
  /** A saved input. @throws InPlaceError if it was overwritten since. */
  input(i: number): Tensor;
  /** A saved output. @throws InPlaceError if it was overwritten since. */
  output(i: number): Tensor;
  /**
   * A saved output that the rule may overwrite and return, after all its reads. Null if another
   * tensor views its memory or another backward pass may follow.
   */
  takeOutput(i: number): Tensor | null;
  inputShape(i: number): Shape;
  /** The strides of input `i` in forward; only for an op whose definition saves strides. */
  inputStrides(i: number): Shape;
  inputDtype(i: number): DType;
  inputDevice(i: number): Device;
  /**
   * The dtype in which the gradient of input `i` is wanted: that of the input, or the wider one of
   * which the input is a conversion.
   */
  gradientDtype(i: number): DType;
  /**
   * The gradient of input `i` that arrived from other ops, contiguous and of its shape and
   * `gradientDtype`. A rule that takes it returns the sum of it and its own. Null if there is none,
   * or if somebody sees the rule's own.
   */
  takeArrived(i: number): Tensor | null;
  /**
   * Whether the rule may change `t` in place: this backward pass made its memory, and no one else
   * reads it or sees the change, as captures and dispatch modes do.
   */
  mayChange(t: Tensor): boolean;
  /**
   * The 16-bit dtype to which the gradient of input `i` is converted next; undefined if it is not,
   * or if the rule gives only a part of it. A rule that computes it in float32 may give it in this
   * dtype, too, by `giveLow`.
   */
  lowDtype(i: number): DType | undefined;
  /** Gives the gradient `g`, which the rule returns for input `i`, in `lowDtype`, too. */
  giveLow(i: number, g: Tensor, low: Tensor): void;
  /**
   * Whether the gradient of input `i` leads to where those of several parts of a tensor are joined,
   * and nobody sees it before.
   */
  isPart(i: number): boolean;
  /**
   * Whether the ops of the rule are recorded. The result must then be differentiable, not only have
   * the right value.
   */
  createsGraph(): boolean;
}

/**
 * Vector-Jacobian product: from the outputs' gradients (null where undefined) to the inputs',
 * written in ops.
 */
export type VjpRule<P> = (ctx: VjpContext<P>, ...grads: Tensor[]) => readonly (Tensor | null)[];

/** The gradient of one view of a tensor. */
export interface ViewGradient<P> {
  readonly params: P;
  readonly g: Tensor;
}

/**
 * The gradient of a tensor from those of its views; `strides`: those of the tensor in forward.
 * `areOwned`: nobody else has their memory, which may become that of the result.
 */
export type JoinRule<P> = (
  views: readonly ViewGradient<P>[],
  shape: Shape,
  strides: Shape,
  areOwned: boolean,
) => Tensor;
