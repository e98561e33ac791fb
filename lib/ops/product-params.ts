/** The kernel of matrix products, for the ops that call it. */
import { type ParamsOf, param } from '../core/op-params.js';
import { float32PrecisionCode } from './float32-precision.js';

/** @internal */
export const productParams = {
  alpha: param.kernel(),
  beta: param.kernel(),
  float32Precision: param.computed(float32PrecisionCode),
};
/** @internal */
export type Product = ParamsOf<typeof productParams>;

/** The product alone. @internal */
export const PLAIN: Product = Object.freeze({ alpha: 1, beta: 0 });

/** The product plus the addend. @internal */
export const PLUS: Product = Object.freeze({ alpha: 1, beta: 1 });

/** @internal */
export const productOperands =
  '(a: T[b, m, k], b: T[b, k, n], addend?: T[b, m, n]) -> (y: T[b, m, n])';
