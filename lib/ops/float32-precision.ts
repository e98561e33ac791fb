/** The precision of products of float32 matrices on GPUs. */
import { layers } from '../core/hooks.js';
import { checkOneOf } from '../core/options.js';

/**
 * - `'highest'`: in float32, on the CUDA cores. The default.
 * - `'tf32x3'`: each operand as the sum of two numbers of TF32, in three products of the tensor
 *   cores: close to float32's error and more
 *   than twice as fast. Infinities give NaN; a product too small to gain is computed in float32.
 * - `'high'`, `'medium'`: TF32, which keeps 10 bits of the operands' mantissas: an error of 1e-3 of
 *   the operands, seven times as fast.
 */
export type Float32MatmulPrecision = 'highest' | 'high' | 'medium' | 'tf32x3';

/** The codes of native/cuda/kernels/matmul/matmul.h. */
const codes: Readonly<Record<Float32MatmulPrecision, number>> = {
  highest: 0,
  high: 1,
  medium: 1,
  tf32x3: 2,
};

let precision: Float32MatmulPrecision = 'highest';
let code = 0;

/**
 * Sets the precision of later products of float32 matrices on GPUs, in forward and backward passes.
 * TF32 requires cuBLASLt and a GPU of sm_80 or later; otherwise, and on the CPU, products are
 * computed in float32.
 *
 * @throws ArgumentError for an unknown name
 * @see PyTorch `torch.set_float32_matmul_precision`, which has no `'tf32x3'`; Ootomo and Yokota,
 * arXiv:2203.03341
 * @example
 * const before = getFloat32MatmulPrecision();
 * setFloat32MatmulPrecision('high');
 * setFloat32MatmulPrecision(before);
 */
export function setFloat32MatmulPrecision(next: Float32MatmulPrecision): void {
  checkOneOf('setFloat32MatmulPrecision', 'precision', next, Object.keys(codes));
  precision = next;
  code = codes[next];
}

/**
 * The precision set by {@link setFloat32MatmulPrecision}. @see PyTorch
 * `torch.get_float32_matmul_precision`
 */
export function getFloat32MatmulPrecision(): Float32MatmulPrecision {
  layers.backend.capture?.dependsOn('getFloat32MatmulPrecision()', currentPrecision);
  return precision;
}

const currentPrecision = (): Float32MatmulPrecision => precision;

/** The precision as the code that kernels get. @internal */
export function float32PrecisionCode(): number {
  return code;
}
