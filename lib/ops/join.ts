/** Joins, and the order of elements: cat, stack, flip, roll, repeat. */

import { toOneDevice } from '../core/device.js';
import { dispatchOne } from '../core/dispatch.js';
import { int64, promoteTypes } from '../core/dtype.js';
import { ArgumentError, DeviceError, ShapeError } from '../core/errors.js';
import { defineOp, type Op, type OutputMeta } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import { checkIntegers } from '../core/options.js';
import {
  checkSizes,
  formatShape,
  type Shape,
  sameShape,
  wrapDim,
  wrapDims,
} from '../core/shape.js';
import { defineFunction, type MethodOf, methodOf } from '../core/signature.js';
import { Tensor } from '../core/tensor.js';
import { copyRowMajor } from './copy.js';
import { addMethod } from './method.js';
import { alongside, requireTensor, requireTensors } from './operand.js';
import { arange } from './ranges.js';
import { reshapeIfNeeded } from './reshape-if-needed.js';
import { sampleTensor } from './samples.js';
import { catRule } from './sharding/concat-and-foreach.js';
import { listOrFirst } from './sized.js';

/**
 * Joins tensors along a dim. Shapes: equal but for the dim, whose sizes add up; an empty vector
 * `[0]` joins with anything. Dtypes: promoted. Gradient: all.
 *
 * @throws ShapeError for other sizes that differ, or tensors without dims; IndexError for a dim out
 * of range; DeviceError for tensors on different devices; ArgumentError for an empty list, or a
 * value that is not a tensor
 * @see PyTorch `torch.cat`
 * @example
 * cat([tensor([[1, 2]]), tensor([[3, 4]])]); // [[1, 2], [3, 4]]
 * cat([zeros([2, 3]), zeros([2, 1])], 1).shape; // [2, 4]
 */
export const cat = defineFunction(
  'cat(tensors, /, dim)',
  (tensors: readonly Tensor[], dim = 0): Tensor => {
    requireTensors(tensors, 'cat');
    if (tensors.length === 0)
      throw new ArgumentError('cat: expected at least one tensor', { op: 'cat' });
    const first = tensors.find((t) => !isEmptyVector(t)) ?? (tensors[0] as Tensor);
    if (first.sizes.length === 0)
      throw new ShapeError('cat: tensors without dims cannot be joined; stack() them', {
        op: 'cat',
        given: first.sizes,
      });
    const at = wrapDim(dim, first.sizes.length, 'cat');
    tensors.forEach((t, i) => {
      const fits =
        isEmptyVector(t) ||
        (t.sizes.length === first.sizes.length &&
          t.sizes.every((s, d) => d === at || s === first.sizes[d]));
      if (!fits) {
        const place = tensors.indexOf(first);
        throw new ShapeError(
          `cat: tensor ${i} has shape ${formatShape(t.sizes)}, tensor ${place} has ` +
            `${formatShape(first.sizes)}; only the sizes of dim ${dim} may differ`,
          {
            op: 'cat',
            tensor: i,
            expected: first.sizes,
            given: t.sizes,
          },
        );
      }
      if (t.device !== first.device)
        throw new DeviceError(
          `cat: tensor ${i} is on ${t.device}, tensor 0 on ${first.device}. ` +
            `${toOneDevice(first.device, t.device)}`,
          {
            op: 'cat',
            tensor: i,
            given: String(t.device),
          },
        );
    });
    const dtype = tensors.reduce((d, t) => promoteTypes(d, t.dtype), first.dtype);
    return dispatchOne(
      catOp,
      tensors.map((t) => (t.dtype === dtype ? t : t.to(dtype))),
      { dim: at, sizes: tensors.map((t) => (isEmptyVector(t) ? 0 : (t.sizes[at] as number))) },
    );
  },
);

/** An empty vector, which joins with any tensor as in PyTorch. */
function isEmptyVector(t: Tensor): boolean {
  return t.sizes.length === 1 && t.sizes[0] === 0;
}

const catParams = {
  dim: param.value<number>(),
  /** The size of each input along the dim. */
  sizes: param.value<readonly number[]>(),
  /** The dense layout of the result, which graph passes choose; row-major by default. */
  strides: param.optional<Shape>(),
};
type Cat = ParamsOf<typeof catParams>;

/** Copies each input into its window of the output. @internal */
export const catOp: Op<Cat> = defineOp({
  name: 'cat',
  outputs: ['y'],
  params: catParams,
  sharding: catRule,
  doc: 'Tensors joined along a dim.',
  kernel: null,
  meta: (inputs, { dim, sizes, strides = null }) => {
    const first = inputs.find((t) => !isEmptyVector(t)) ?? (inputs[0] as Tensor);
    const total = sizes.reduce((a, b) => a + b, 0);
    return [
      {
        shape: first.sizes.map((s, i) => (i === dim ? total : s)),
        strides,
        dtype: first.dtype,
        device: first.device,
      },
    ];
  },
  move: (inputs, params, memory) => {
    const y = memory.allocate('cat', catOp.meta(inputs, params)[0] as OutputMeta);
    let start = 0;
    for (const t of inputs) {
      if (t.numel() === 0) continue;
      const offset = start * (y.strides[params.dim] as number);
      const window = new Tensor(t.sizes, y.strides, offset, y.dtype, y.device, y.storage, 0, y);
      memory.copy(t, window);
      window.dispose();
      start += t.sizes[params.dim] as number;
    }
    return y;
  },
  vjp: (ctx, g) => {
    const { dim, sizes } = ctx.params;
    let at = 0;
    return sizes.map((size, i) => {
      const start = at;
      at += size;
      if (!ctx.needs(i)) return null;
      return ctx.inputShape(i).length === g.sizes.length
        ? g.narrow(dim, start, size)
        : g.newZeros(ctx.inputShape(i));
    });
  },
  samples: () => [
    {
      inputs: [sampleTensor([2, 3]), sampleTensor([1, 3], { seed: 4 }), sampleTensor([0, 3])],
      params: { dim: 0, sizes: [2, 1, 0] },
    },
  ],
});

/**
 * Joins tensors along a new dim. Shapes: k times `[...]` to `[..., k, ...]`, `dim` counted in the
 * result. Dtypes: promoted. Gradient: all.
 *
 * @throws ShapeError for shapes that differ; IndexError, DeviceError, ArgumentError as {@link cat}
 * @see PyTorch `torch.stack`
 * @example
 * stack([tensor([1, 2]), tensor([3, 4])]); // [[1, 2], [3, 4]]
 */
export const stack = defineFunction(
  'stack(tensors, /, dim)',
  (tensors: readonly Tensor[], dim = 0): Tensor => {
    requireTensors(tensors, 'stack');
    if (tensors.length === 0)
      throw new ArgumentError('stack: expected at least one tensor', { op: 'stack' });
    const first = tensors[0] as Tensor;
    tensors.forEach((t, i) => {
      if (!sameShape(t.sizes, first.sizes))
        throw new ShapeError(
          `stack: tensor ${i} has shape ${formatShape(t.sizes)}, tensor 0 has ` +
            `${formatShape(first.sizes)}; stack takes equal shapes, cat joins along a dim`,
          { op: 'stack' },
        );
    });
    const at = wrapDim(dim, first.sizes.length + 1, 'stack');
    return cat(
      tensors.map((t) => t.unsqueeze(at)),
      at,
    );
  },
);

const flipDims = defineFunction(
  'flip(input, /, dims)',
  (input: Tensor, dims: number | readonly number[]): Tensor => {
    requireTensor(input, 'flip');
    if (dims === undefined || dims === null)
      throw new ArgumentError('flip: expected the dims to flip', { op: 'flip' });
    const list =
      typeof dims === 'object' && dims.length === 0
        ? []
        : wrapDims(dims, input.sizes.length, 'flip');
    if (list.length === 0) return input.clone();
    return list.reduce((t, d) => {
      const size = t.sizes[d] as number;
      return t.indexSelect(
        d,
        alongside(t, arange(size - 1, -1, -1, { dtype: int64, device: t.device })),
      );
    }, input);
  },
);

/** The forms of {@link flip}: dims in an array or one by one. */
interface Flip<Input extends unknown[]> {
  (...args: [...Input, dims: number | readonly number[]]): Tensor;
  (...args: [...Input, ...dims: readonly (number | readonly number[])[]]): Tensor;
  (...args: [...Input, options: { dims: number | readonly number[] }]): Tensor;
}

/**
 * Elements in reverse order along the dims given. Shapes: any, kept. Dtypes: any, kept. Gradient:
 * yes.
 *
 * @throws IndexError for a dim out of range or given twice; ArgumentError for no dims at all, or a
 * value that is not a tensor
 * @see PyTorch `torch.flip`
 */
export const flip: Flip<[input: Tensor]> = (input: Tensor, ...dims: readonly unknown[]): Tensor =>
  flipDims(input, (dims.length > 1 ? dims.flat() : dims[0]) as number[]);

/**
 * Elements shifted along dims; those moved beyond the end come back at the start. Without `dims`,
 * or with an empty list, along the flattened tensor. Shapes: any, kept. Dtypes: any, kept.
 * Gradient: yes.
 *
 * @throws ArgumentError unless there are as many dims as shifts, or for a value that is not a
 * tensor; IndexError for a dim out of range, or a shift that is not an integer
 * @see PyTorch `torch.roll`
 */
export const roll = defineFunction(
  'roll(input, /, shifts, dims)',
  (
    input: Tensor,
    shifts: number | readonly number[],
    dims: number | readonly number[] | null = null,
  ): Tensor => {
    requireTensor(input, 'roll');
    const by = typeof shifts === 'number' ? [shifts] : shifts;
    checkIntegers('roll', 'shifts', by);
    if (dims === null || (Array.isArray(dims) && dims.length === 0)) {
      if (by.length !== 1)
        throw new ArgumentError(`roll: ${by.length} shifts need as many dims`, {
          op: 'roll',
          shifts,
        });
      return reshapeIfNeeded(
        rollDim(reshapeIfNeeded(input, [-1]), by[0] as number, 0),
        input.sizes,
      );
    }
    const along = typeof dims === 'number' ? [dims] : dims;
    checkIntegers('roll', 'dims', along);
    for (const dim of along) wrapDim(dim, input.sizes.length, 'roll');
    if (input.sizes.length === 0) return input.clone();
    if (along.length !== by.length)
      throw new ArgumentError(`roll: ${by.length} shifts for ${along.length} dims`, {
        op: 'roll',
        shifts,
        dims,
      });
    return along.reduce((t, dim, i) => rollDim(t, by[i] as number, dim), input);
  },
);

function rollDim(input: Tensor, shift: number, dim: number): Tensor {
  const size = input.size(dim);
  if (size === 0) return input.clone();
  const by = ((shift % size) + size) % size;
  return by === 0
    ? input.clone()
    : cat([input.narrow(dim, size - by, by), input.narrow(dim, 0, size - by)], dim);
}

/**
 * The tensor repeated along each dim. Shapes: `[a, b]` with counts `[m, n]` to `[m a, n b]`; more
 * counts than dims add dims in front. Dtypes: any, kept. Gradient: yes.
 *
 * @throws ShapeError for fewer counts than dims; ArgumentError for a count that is negative or no
 * integer
 * @see PyTorch `torch.Tensor.repeat`
 */
export const repeat = defineFunction(
  'repeat(input, /, repeats)',
  (input: Tensor, repeats: readonly number[]): Tensor => {
    requireTensor(input, 'repeat');
    checkSizes(repeats, 'repeat');
    const lead = repeats.length - input.sizes.length;
    if (lead < 0)
      throw new ShapeError(
        `repeat: ${repeats.length} counts for a tensor of ${input.sizes.length} dims`,
        { op: 'repeat' },
      );
    const shape = [...Array<number>(lead).fill(1), ...input.sizes];
    const paired = shape.flatMap((s) => [1, s]);
    const stretched = shape.flatMap((s, i) => [repeats[i] as number, s]);
    // The result never shares the input's memory, whatever the counts.
    const repeated = copyRowMajor(input.reshape(paired).expand(stretched)).reshape(
      shape.map((s, i) => s * (repeats[i] as number)),
    );
    repeated.base = null; // no other code has the copy that it is a view of
    return repeated;
  },
);

addMethod('flip', function (...dims: (number | readonly number[])[]) {
  return flip(this, ...dims);
});
addMethod('roll', methodOf(roll));
addMethod('repeat', function (...repeats: unknown[]) {
  return repeat(this, listOrFirst(repeats));
});

declare module '../core/tensor.js' {
  interface Tensor {
    /** Elements in reverse order along dims. The same as {@link flip}. */
    flip: Flip<[]>;
    /** Elements moved along dims, around the end. The same as {@link roll}. */
    roll: MethodOf<typeof roll>;
    /** The tensor repeated along each dim. The same as {@link repeat}. */
    repeat: MethodOf<typeof repeat> & ((...repeats: number[]) => Tensor);
  }
}
