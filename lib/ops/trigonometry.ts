/**
 * Trigonometric and hyperbolic functions of one tensor. Shapes: as the input. Dtypes: floating ones
 * are kept, integers and bools give the default one. Gradient: yes. All throw ArgumentError for a
 * value that is not a tensor. Each is the function of that name in PyTorch.
 */

import type { Tensor } from '../core/tensor.js';
import { savesInput, savesOutput, unary } from './pointwise-unary.js';

const inUnit = { low: -0.9, high: 0.9 };
/** Sine, of radians. Gradient: yes. @see PyTorch `torch.sin` */
export const sin = unary('sin', {
  doc: 'Sine, of radians.',
  expression: 'm::sin(x)',
  saves: savesInput,
  vjp: (ctx, g) => [g.mul(ctx.input(0).cos())],
});
/** Cosine, of radians. Gradient: yes. @see PyTorch `torch.cos` */
export const cos = unary('cos', {
  doc: 'Cosine, of radians.',
  expression: 'm::cos(x)',
  saves: savesInput,
  vjp: (ctx, g) => [g.mul(ctx.input(0).sin().neg())],
});
/** Tangent, of radians. Gradient: yes. @see PyTorch `torch.tan` */
export const tan = unary('tan', {
  autocast: 'float32 on cuda',
  doc: 'Tangent, of radians.',
  expression: 'm::tan(x)',
  range: inUnit,
  saves: savesOutput,
  vjp: (ctx, g) => [g.mul(ctx.output(0).square().add(1))],
});
/** Inverse sine, in radians; NaN outside [-1, 1]. Gradient: yes. @see PyTorch `torch.asin` */
export const asin = unary('asin', {
  autocast: 'float32 on cuda',
  doc: 'Inverse sine, in radians.',
  expression: 'm::asin(x)',
  range: inUnit,
  saves: savesInput,
  vjp: (ctx, g) => [g.mul(ctx.input(0).square().neg().add(1).rsqrt())],
});
/** Inverse cosine, in radians; NaN outside [-1, 1]. Gradient: yes. @see PyTorch `torch.acos` */
export const acos = unary('acos', {
  autocast: 'float32 on cuda',
  doc: 'Inverse cosine, in radians.',
  expression: 'm::acos(x)',
  range: inUnit,
  saves: savesInput,
  vjp: (ctx, g) => [g.mul(ctx.input(0).square().neg().add(1).rsqrt()).neg()],
});
/** Inverse tangent, in radians. Gradient: yes. @see PyTorch `torch.atan` */
export const atan = unary('atan', {
  doc: 'Inverse tangent, in radians.',
  expression: 'm::atan(x)',
  saves: savesInput,
  vjp: (ctx, g) => [g.div(ctx.input(0).square().add(1))],
});
/** Hyperbolic sine. Gradient: yes. @see PyTorch `torch.sinh` */
export const sinh = unary('sinh', {
  autocast: 'float32 on cuda',
  doc: 'Hyperbolic sine.',
  expression: 'm::sinh(x)',
  saves: savesInput,
  vjp: (ctx, g) => [g.mul(ctx.input(0).cosh())],
});
/** Hyperbolic cosine. Gradient: yes. @see PyTorch `torch.cosh` */
export const cosh = unary('cosh', {
  autocast: 'float32 on cuda',
  doc: 'Hyperbolic cosine.',
  expression: 'm::cosh(x)',
  saves: savesInput,
  vjp: (ctx, g) => [g.mul(ctx.input(0).sinh())],
});
/** Inverse hyperbolic sine. Gradient: yes. @see PyTorch `torch.asinh` */
export const asinh = unary('asinh', {
  doc: 'Inverse hyperbolic sine.',
  expression: 'm::asinh(x)',
  saves: savesInput,
  vjp: (ctx, g) => [g.mul(ctx.input(0).square().add(1).rsqrt())],
});
/** Inverse hyperbolic cosine; NaN below 1. Gradient: yes. @see PyTorch `torch.acosh` */
export const acosh = unary('acosh', {
  doc: 'Inverse hyperbolic cosine.',
  expression: 'm::acosh(x)',
  range: { low: 1.2, high: 4 },
  saves: savesInput,
  vjp: (ctx, g) => [g.mul(ctx.input(0).square().sub(1).rsqrt())],
});
/** Inverse hyperbolic tangent; NaN outside [-1, 1]. Gradient: yes. @see PyTorch `torch.atanh` */
export const atanh = unary('atanh', {
  doc: 'Inverse hyperbolic tangent.',
  expression: 'm::atanh(x)',
  range: inUnit,
  saves: savesInput,
  vjp: (ctx, g) => [g.div(ctx.input(0).square().neg().add(1))],
});

declare module '../core/tensor.js' {
  interface Tensor {
    /**
     * {@link sin}: sine, of radians.
     *
     * @example
     * tensor([0, Math.PI / 2]).sin(); // [0, 1]
     */ sin(): Tensor;
    /** {@link sin} in place; see {@link Tensor.add_}. */ sin_(): this;
    /** {@link cos}: cosine, of radians. */ cos(): Tensor;
    /** {@link cos} in place; see {@link Tensor.add_}. */ cos_(): this;
    /** {@link tan}: tangent, of radians. */ tan(): Tensor;
    /** {@link tan} in place; see {@link Tensor.add_}. */ tan_(): this;
    /** {@link asin}: inverse sine, in radians. */ asin(): Tensor;
    /** {@link asin} in place; see {@link Tensor.add_}. */ asin_(): this;
    /** {@link acos}: inverse cosine, in radians. */ acos(): Tensor;
    /** {@link acos} in place; see {@link Tensor.add_}. */ acos_(): this;
    /** {@link atan}: inverse tangent, in radians. */ atan(): Tensor;
    /** {@link atan} in place; see {@link Tensor.add_}. */ atan_(): this;
    /** {@link sinh}: hyperbolic sine. */ sinh(): Tensor;
    /** {@link sinh} in place; see {@link Tensor.add_}. */ sinh_(): this;
    /** {@link cosh}: hyperbolic cosine. */ cosh(): Tensor;
    /** {@link cosh} in place; see {@link Tensor.add_}. */ cosh_(): this;
    /** {@link asinh}: inverse hyperbolic sine. */ asinh(): Tensor;
    /** {@link asinh} in place; see {@link Tensor.add_}. */ asinh_(): this;
    /** {@link acosh}: inverse hyperbolic cosine. */ acosh(): Tensor;
    /** {@link acosh} in place; see {@link Tensor.add_}. */ acosh_(): this;
    /** {@link atanh}: inverse hyperbolic tangent. */ atanh(): Tensor;
    /** {@link atanh} in place; see {@link Tensor.add_}. */ atanh_(): this;
  }
}
