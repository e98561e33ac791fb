/** The indices of the elements that are not 0: nonzero. */

import { calledAs } from '../core/call-context.js';
import { dispatch, dispatchOne } from '../core/dispatch.js';
import { int64 } from '../core/dtype.js';
import { defineOp, type Op } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import { checkFlag } from '../core/options.js';
import { contiguousStrides, type Shape } from '../core/shape.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import type { IndexRows, IndexVectors } from './index-tensors.js';
import { addMethod } from './method.js';
import { requireTensor } from './operand.js';

/**
 * The number of elements per entry of `starts`: a multiple of 64, the number of flags in a word.
 */
const tileParams = {
  tile: param.kernel(),
};
type Tiles = ParamsOf<typeof tileParams>;

const SMALLEST_TILE = 4096;
/** The number of counts that one block of a GPU adds up. */
const MOST_TILES = 16_384;

/**
 * Computes flags and counts, from which the rows are computed once their number is known, so that
 * the input is read once.
 */
const nonzeroOp: Op<Tiles> = defineOp({
  name: 'nonzero',
  doc:
    'Which elements are not 0: how many lie before each tile, and in all; a ' +
    'bit for each element.',
  inputs: ['x'],
  outputs: ['starts', 'flags'],
  operands:
    '(x: [...]) -> (starts: dense int64 [...], flags: dense int64 [...])' +
    ' where tiles(starts, flags, x, tile)',
  params: tileParams,
  meta: ([x], { tile }) => {
    const { device } = x;
    const numel = x.numel();
    return [
      { shape: [Math.ceil(numel / tile) + 1], strides: null, dtype: int64, device },
      { shape: [Math.ceil(numel / 64)], strides: null, dtype: int64, device },
    ];
  },
  vjp: 'not-differentiable',
  samples: () => [],
});

const nonzeroRowsParams = {
  ...tileParams,
  /** The shape of the input. */
  shape: param.value<Shape>(),
  count: param.value<number>(),
};
type NonzeroRows = ParamsOf<typeof nonzeroRowsParams>;

const nonzeroRowsOp: Op<NonzeroRows> = defineOp({
  name: 'nonzeroRows',
  doc: 'Indices of elements that are not 0, from what nonzero found.',
  inputs: ['starts', 'flags'],
  outputs: ['rows'],
  operands:
    '(shape: indexView [...], starts: dense int64 [...], flags: dense int64 [...])' +
    ' -> (rows: dense int64 [n, d]) where tiles(starts, flags, shape, tile), rank(shape, d)',
  params: nonzeroRowsParams,
  meta: ([starts], { shape, count }) => [
    { shape: [count, shape.length], strides: null, dtype: int64, device: starts.device },
  ],
  lower: (command, [starts, flags], [rows], { shape }) => {
    command.indexView(0, shape, contiguousStrides(shape));
    command.tensor(starts);
    command.tensor(flags);
    command.output(rows);
  },
  vjp: 'not-differentiable',
  samples: () => [],
});

/**
 * Indices of the elements that are not 0, in row-major order: `[n, ndim]`, or with `asTuple` (false
 * by default) ndim vectors `[n]` (one without dims), as `index` takes them. Dtypes: any; the result
 * is int64. Blocks: its shape depends on values. Gradient: none.
 *
 * @throws ArgumentError unless `input` is a tensor
 * @see PyTorch `torch.nonzero`
 */
export const nonzero = defineFunction(
  'nonzero(input, /, *, asTuple)',
  (input: Tensor, { asTuple = false }: { asTuple?: boolean } = {}): Tensor | Tensor[] => {
    requireTensor(input, 'nonzero');
    checkFlag('nonzero', 'asTuple', asTuple);
    if (asTuple && input.shape.length === 0)
      return nonzero(input.detach().unsqueeze(0), { asTuple: true });
    let tile = SMALLEST_TILE;
    while (tile * MOST_TILES < input.numel()) tile *= 2;
    const [starts, flags] = dispatch(nonzeroOp, [input.detach()], { tile }) as [Tensor, Tensor];
    try {
      const count = Number(
        calledAs('nonzero', () => starts.narrow(0, starts.numel() - 1, 1).item()),
      );
      const found = dispatchOne(nonzeroRowsOp, [starts, flags], {
        shape: input.shape,
        count,
        tile,
      });
      return asTuple ? found.unbind(1) : found;
    } finally {
      starts.dispose();
      flags.dispose();
    }
  },
) as unknown as IndexVectors & IndexRows;
addMethod('nonzero', methodOf(nonzero));

declare module '../core/tensor.js' {
  interface Tensor {
    /**
     * Indices of the elements that are not 0, one row each, or with `asTuple` one vector for each
     * dim. Blocks. The same as {@link nonzero}.
     */
    nonzero: MethodOf<IndexVectors> & MethodOf<IndexRows>;
  }
}
