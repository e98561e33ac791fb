/**
 * PyTorch's second names of ops: `multiply` for `mul`, `swapaxes` for `transpose`. They are the
 * same functions and methods.
 */

import { Tensor } from '../core/tensor.js';
import { clamp } from './clamp.js';
import { ge, gt, le, lt, ne } from './comparison.js';
import { div } from './division.js';
import { cat } from './join.js';
import { addMethod } from './method.js';
import { movedim, transpose } from './permute.js';
import { mul, sub } from './pointwise-binary.js';
import { abs, neg } from './pointwise-unary.js';

export {
  abs as absolute,
  cat as concat,
  cat as concatenate,
  clamp as clip,
  div as divide,
  div as trueDivide,
  ge as greaterEqual,
  gt as greater,
  le as lessEqual,
  lt as less,
  movedim as moveaxis,
  mul as multiply,
  ne as notEqual,
  neg as negative,
  sub as subtract,
  transpose as swapaxes,
  transpose as swapdims,
};

const methods = {
  absolute: 'abs',
  absolute_: 'abs_',
  clip: 'clamp',
  clip_: 'clamp_',
  divide: 'div',
  divide_: 'div_',
  trueDivide: 'div',
  trueDivide_: 'div_',
  greater: 'gt',
  greaterEqual: 'ge',
  less: 'lt',
  lessEqual: 'le',
  moveaxis: 'movedim',
  multiply: 'mul',
  multiply_: 'mul_',
  notEqual: 'ne',
  negative: 'neg',
  negative_: 'neg_',
  subtract: 'sub',
  subtract_: 'sub_',
  swapaxes: 'transpose',
  swapdims: 'transpose',
  ndimension: 'dim',
  nelement: 'numel',
} as const;

for (const [alias, name] of Object.entries(methods)) addMethod(alias, Tensor.prototype[name]);

declare module '../core/tensor.js' {
  interface Tensor {
    /** As {@link Tensor.abs}. */
    absolute: Tensor['abs'];
    /** As {@link Tensor.abs_}. */
    absolute_: Tensor['abs_'];
    /** As {@link Tensor.clamp}. */
    clip: Tensor['clamp'];
    /** As {@link Tensor.clamp_}. */
    clip_: Tensor['clamp_'];
    /** As {@link Tensor.div}. */
    divide: Tensor['div'];
    /** As {@link Tensor.div_}. */
    divide_: Tensor['div_'];
    /** As {@link Tensor.div}. */
    trueDivide: Tensor['div'];
    /** As {@link Tensor.div_}. */
    trueDivide_: Tensor['div_'];
    /** As {@link Tensor.gt}. */
    greater: Tensor['gt'];
    /** As {@link Tensor.ge}. */
    greaterEqual: Tensor['ge'];
    /** As {@link Tensor.lt}. */
    less: Tensor['lt'];
    /** As {@link Tensor.le}. */
    lessEqual: Tensor['le'];
    /** As {@link Tensor.movedim}. */
    moveaxis: Tensor['movedim'];
    /** As {@link Tensor.mul}. */
    multiply: Tensor['mul'];
    /** As {@link Tensor.mul_}. */
    multiply_: Tensor['mul_'];
    /** As {@link Tensor.ne}. */
    notEqual: Tensor['ne'];
    /** As {@link Tensor.neg}. */
    negative: Tensor['neg'];
    /** As {@link Tensor.neg_}. */
    negative_: Tensor['neg_'];
    /** As {@link Tensor.sub}. */
    subtract: Tensor['sub'];
    /** As {@link Tensor.sub_}. */
    subtract_: Tensor['sub_'];
    /** As {@link Tensor.transpose}. */
    swapaxes: Tensor['transpose'];
    /** As {@link Tensor.transpose}. */
    swapdims: Tensor['transpose'];
    /** As {@link Tensor.dim}. */
    ndimension: Tensor['dim'];
    /** As {@link Tensor.numel}. */
    nelement: Tensor['numel'];
  }
}
