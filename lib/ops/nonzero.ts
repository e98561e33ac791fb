/** The indices of the elements that are not 0: nonzero. */

import { calledAs } from '../core/call-context.js';
import { dispatch, dispatchOne } from '../core/dispatch.js';
import { int64 } from '../core/dtype.js';
import { defineOp, type Op } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import { checkFlag } from '../core/options.js';
import { contiguousStrides, type Shape } from '../core/shape.js';
import { defineFunction, type FunctionOf, type MethodOf, methodOf } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
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
    '(shape: indexView [...], starts: dense indices int64 [...], ' +
    'flags: dense indices int64 [...])' +
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

type AsTuple<Result> = (input: Tensor, options: { asTuple: true }) => Result;
type AsRows<Result> = (input: Tensor, options?: { asTuple?: false }) => Result;

/** @internal */
export type IndexVectors = FunctionOf<'nonzero(input, /, *, asTuple)', AsTuple<Tensor[]>>;
/** @internal */
export type IndexRows = FunctionOf<'nonzero(input, /, *, asTuple)', AsRows<Tensor>>;
/** @internal */
export type IndexVectorsAsync = FunctionOf<
  'nonzeroAsync(input, /, *, asTuple)',
  AsTuple<Promise<Tensor[]>>
>;
/** @internal */
export type IndexRowsAsync = FunctionOf<
  'nonzeroAsync(input, /, *, asTuple)',
  AsRows<Promise<Tensor>>
>;

/** Flags and counts of a tensor's elements. */
interface Found {
  readonly starts: Tensor;
  readonly flags: Tensor;
  readonly tile: number;
  /** The number of elements that are not 0. */
  readonly count: Tensor;
}

function find(input: Tensor): Found {
  let tile = SMALLEST_TILE;
  while (tile * MOST_TILES < input.numel()) tile *= 2;
  const [starts, flags] = dispatch(nonzeroOp, [input.detach()], { tile }) as [Tensor, Tensor];
  return { starts, flags, tile, count: starts.narrow(0, starts.numel() - 1, 1) };
}

function rowsOf({ starts, flags, tile }: Found, shape: Shape, count: number): Tensor {
  return dispatchOne(nonzeroRowsOp, [starts, flags], { shape, count, tile });
}

function free({ starts, flags, count }: Found): void {
  for (const t of [count, starts, flags]) t.dispose();
}

/** As vectors, a tensor without dims is a vector. @throws ArgumentError */
function checked(op: string, input: Tensor, asTuple: boolean): Tensor {
  requireTensor(input, op);
  checkFlag(op, 'asTuple', asTuple);
  return asTuple && input.sizes.length === 0 ? input.detach().unsqueeze(0) : input;
}

/**
 * Indices of the elements that are not 0, in row-major order: `[n, ndim]`, or with `asTuple` (false
 * by default) ndim vectors `[n]` (one without dims), as `index` takes them. Dtypes: any; the result
 * is int64. Gradient: none. Blocks until all queued work of the device is done, because its shape
 * depends on values; {@link nonzeroAsync} does not.
 *
 * @throws ArgumentError unless `input` is a tensor
 * @see PyTorch `torch.nonzero`
 */
export const nonzero = defineFunction(
  'nonzero(input, /, *, asTuple)',
  (input: Tensor, { asTuple = false }: { asTuple?: boolean } = {}): Tensor | Tensor[] => {
    const x = checked('nonzero', input, asTuple);
    const found = find(x);
    try {
      const count = Number(calledAs('nonzero', () => found.count.item()));
      const rows = rowsOf(found, x.sizes, count);
      return asTuple ? rows.unbind(1) : rows;
    } finally {
      free(found);
    }
  },
) as unknown as IndexVectors & IndexRows;

/**
 * The same as {@link nonzero} without blocking the event loop: the promise gives the indices when
 * their number is known. Later changes of `input` do not count. The promise is rejected with what
 * `nonzero` throws.
 *
 * @example
 * const scores = tensor([3, -1, 5]);
 * const [rows] = await nonzeroAsync(scores.gt(0), { asTuple: true });
 * scores.index([rows ?? null]); // [3, 5]
 */
export const nonzeroAsync = defineFunction(
  'nonzeroAsync(input, /, *, asTuple)',
  async (
    input: Tensor,
    { asTuple = false }: { asTuple?: boolean } = {},
  ): Promise<Tensor | Tensor[]> => {
    const x = checked('nonzeroAsync', input, asTuple);
    const found = find(x);
    try {
      const rows = rowsOf(found, x.sizes, Number(await found.count.itemAsync()));
      return asTuple ? rows.unbind(1) : rows;
    } finally {
      free(found);
    }
  },
) as unknown as IndexVectorsAsync & IndexRowsAsync;

addMethod('nonzero', methodOf(nonzero));
addMethod('nonzeroAsync', methodOf(nonzeroAsync));

declare module '../core/tensor.js' {
  interface Tensor {
    /**
     * Indices of the elements that are not 0, one row each, or with `asTuple` one vector for each
     * dim. Blocks. The same as {@link nonzero}.
     */
    nonzero: MethodOf<IndexVectors> & MethodOf<IndexRows>;
    /** {@link Tensor.nonzero} without blocking the event loop. */
    nonzeroAsync: MethodOf<IndexVectorsAsync> & MethodOf<IndexRowsAsync>;
  }
}
