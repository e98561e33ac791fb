/**
 * Splitting and stacking by dim names: tensorSplit, hsplit, vsplit, hstack, vstack, dstack,
 * columnStack.
 */

import { ShapeError } from '../core/errors.js';
import { checkIntegers, checkNumber } from '../core/options.js';
import { formatShape, wrapDim } from '../core/shape.js';
import { defineFunction, type MethodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { atleast1d, atleast2d, atleast3d } from './broadcast.js';
import { defineComposite } from './composite.js';
import { cat } from './join.js';
import { requireTensor, requireTensors } from './operand.js';
import { sampleTensor } from './samples.js';

const matrix = () => sampleTensor([3, 4]);

/**
 * Splits along a dim (0) into views: `sections` of almost equal size (the first ones larger by 1),
 * or sections that begin at the given indices, which may be negative or beyond the end. Gradient:
 * yes.
 *
 * @throws ArgumentError unless the count is a positive integer and the input a tensor; ShapeError,
 * IndexError for a tensor without dims; IndexError for the dim
 * @see PyTorch `torch.tensor_split`
 */
export const tensorSplit = defineComposite(
  'tensorSplit',
  defineFunction(
    'tensorSplit(input, /, indicesOrSections, dim)',
    (input: Tensor, indicesOrSections: number | readonly number[], dim = 0): Tensor[] => {
      return chunks('tensorSplit', input, indicesOrSections, dim);
    },
  ),
  {
    samples: () => [
      [sampleTensor([7, 2]), 3],
      [sampleTensor([7, 2]), [1, 4], 0],
    ],
  },
);

function chunks(
  op: string,
  input: Tensor,
  sections: number | readonly number[],
  dim: number,
): Tensor[] {
  requireTensor(input, op);
  const size = input.sizes[wrapDim(dim, input.ndim, op)];
  if (size === undefined)
    throw new ShapeError(`${op}: expected at least one dim, got a tensor without dims`, { op });
  if (typeof sections === 'number') {
    checkNumber(op, 'sections', sections, { from: 1, to: 2 ** 20, whole: true });
    const [small, larger] = [Math.floor(size / sections), size % sections];
    return input.split(
      Array.from({ length: sections }, (_, i) => small + Number(i < larger)),
      dim,
    );
  }
  checkIntegers(op, 'sections', sections);
  const bounds = [0, ...sections, size];
  return bounds.slice(1).map((end, i) => input.slice(dim, bounds[i] as number, end));
}

/** @throws ShapeError for too few dims, or a number of sections that does not divide the size */
function requireEvenParts(
  op: string,
  input: Tensor,
  sections: number | readonly number[],
  dim: number,
  least: number,
): void {
  requireTensor(input, op);
  if (input.ndim < least)
    throw new ShapeError(
      `${op}: expected at least ${least} dims, got shape ${formatShape(input.sizes)}`,
      { op, shape: input.sizes },
    );
  if (typeof sections === 'number' && input.size(dim) % sections !== 0)
    throw new ShapeError(
      `${op}: dim ${dim} of shape ${formatShape(input.sizes)} does not divide into ` +
        `${sections} equal parts`,
      { op, shape: input.sizes, sections },
    );
}

/**
 * {@link tensorSplit} along dim 1, or dim 0 of a vector, into equal parts where their number is
 * given. @see PyTorch `torch.hsplit`
 */
export const hsplit = defineComposite(
  'hsplit',
  defineFunction(
    'hsplit(input, /, indicesOrSections)',
    (input: Tensor, indicesOrSections: number | readonly number[]): Tensor[] => {
      requireTensor(input, 'hsplit');
      const dim = input.ndim === 1 ? 0 : 1;
      requireEvenParts('hsplit', input, indicesOrSections, dim, 1);
      return chunks('hsplit', input, indicesOrSections, dim);
    },
  ),
  { samples: () => [[matrix(), 2]] },
);

/**
 * {@link tensorSplit} along dim 0 of at least two dims, into equal parts where their number is
 * given. @see PyTorch `torch.vsplit`
 */
export const vsplit = defineComposite(
  'vsplit',
  defineFunction(
    'vsplit(input, /, indicesOrSections)',
    (input: Tensor, indicesOrSections: number | readonly number[]): Tensor[] => {
      requireEvenParts('vsplit', input, indicesOrSections, 0, 2);
      return chunks('vsplit', input, indicesOrSections, 0);
    },
  ),
  { samples: () => [[matrix(), [1]]] },
);

/**
 * Joins along dim 1, vectors along dim 0; dtypes promoted. Shapes: `[m, a]` and `[m, b]` give `[m,
 * a + b]`. Gradient: all.
 *
 * @throws ShapeError if other sizes differ; DeviceError for two devices; ArgumentError for an empty
 * list
 * @see PyTorch `torch.hstack`
 */
export function hstack(tensors: readonly Tensor[]): Tensor {
  requireTensors(tensors, 'hstack');
  const list = tensors.map(atleast1d);
  return cat(list, list[0]?.ndim === 1 ? 0 : 1);
}

/**
 * Joins along dim 0, vectors as rows; dtypes promoted. Shapes: `[a, n]` and `[n]` give `[a + 1,
 * n]`. Gradient: all.
 *
 * @throws ShapeError if other sizes differ; DeviceError for two devices; ArgumentError for an empty
 * list
 * @see PyTorch `torch.vstack`
 */
export function vstack(tensors: readonly Tensor[]): Tensor {
  requireTensors(tensors, 'vstack');
  return cat(tensors.map(atleast2d), 0);
}

/**
 * Joins along dim 2, after {@link atleast3d}; dtypes promoted. Shapes: `[m, n]` twice gives `[m, n,
 * 2]`. Gradient: all.
 *
 * @throws ShapeError if other sizes differ; DeviceError for two devices; ArgumentError for an empty
 * list
 * @see PyTorch `torch.dstack`
 */
export function dstack(tensors: readonly Tensor[]): Tensor {
  requireTensors(tensors, 'dstack');
  return cat(tensors.map(atleast3d), 2);
}

/**
 * Joins along dim 1, vectors as columns; dtypes promoted. Shapes: `[m]` and `[m, b]` give `[m, 1 +
 * b]`. Gradient: all.
 *
 * @throws ShapeError if other sizes differ; DeviceError for two devices; ArgumentError for an empty
 * list
 * @see PyTorch `torch.column_stack`
 */
export function columnStack(tensors: readonly Tensor[]): Tensor {
  requireTensors(tensors, 'columnStack');
  return cat(
    tensors.map((t) => (t.ndim <= 1 ? t.reshape([t.numel(), 1]) : t)),
    1,
  );
}

declare module '../core/tensor.js' {
  interface Tensor {
    /**
     * Sections of almost equal size, or between indices, as views; the same as {@link tensorSplit}.
     */
    tensorSplit: MethodOf<typeof tensorSplit>;
    /** Pieces along dim 1 (0 of a vector), as views; the same as {@link hsplit}. */
    hsplit: MethodOf<typeof hsplit>;
    /** Pieces along dim 0, as views; the same as {@link vsplit}. */
    vsplit: MethodOf<typeof vsplit>;
  }
}
