/**
 * Tensors whose values are undefined until written: empty, emptyLike. They cost an allocation and
 * no kernel.
 */

import type { Device } from '../core/device.js';
import { dispatchOne } from '../core/dispatch.js';
import { type DType, getDefaultDtype } from '../core/dtype.js';
import { defineOp, type Op } from '../core/op.js';
import { type ParamsOf, param } from '../core/op-params.js';
import { optionsOf } from '../core/options.js';
import { checkSizes, type Shape } from '../core/shape.js';
import { defineFunction } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import { placed, TENSOR_OPTIONS, type TensorOptions } from './factories.js';
import { requireDtype, requireTensor } from './operand.js';
import { finish } from './pinned.js';
import { factoryRule } from './sharding/factories-and-random.js';
import { sizedFactory } from './sized.js';

const emptyParams = {
  shape: param.value<Shape>(),
  dtype: param.value<DType>(),
  device: param.value<Device>(),
  pinned: param.optional<boolean>(),
};
type EmptyParams = ParamsOf<typeof emptyParams>;

/** An allocation and no kernel. */
const emptyOp: Op<EmptyParams> = defineOp({
  name: 'empty',
  inputs: [],
  outputs: ['y'],
  params: emptyParams,
  doc: 'A tensor whose values are undefined.',
  sharding: factoryRule<EmptyParams>(),
  traits: ['uninitialized'],
  kernel: null,
  meta: (_inputs, { shape, dtype, device }) => [{ shape, strides: null, dtype, device }],
  move: (_inputs, { shape, dtype, device, pinned }, memory) =>
    memory.allocate('empty', { shape, strides: null, dtype, device }, pinned),
  vjp: 'not-differentiable',
  samples: () => [],
});

/**
 * A tensor whose values are undefined until written: no kernel runs. Shapes: `size`. Dtypes: the
 * default floating type unless given. Gradient: none, it is a leaf.
 *
 * @throws ArgumentError for bad sizes; else for bad options, see {@link TensorOptions}
 * @see PyTorch `torch.empty`
 */
export const empty = sizedFactory<TensorOptions>(
  defineFunction(
    'empty(size, *, dtype, device, requiresGrad, pinMemory)',
    (size: Shape, options: TensorOptions = {}): Tensor => {
      checkSizes(size, 'empty');
      const device = placed(options, 'empty');
      const pinned = options.pinMemory === true && device.type === 'cpu';
      return finish(
        dispatchOne(emptyOp, [], {
          shape: [...size],
          dtype: requireDtype(options.dtype, 'empty') ?? getDefaultDtype(),
          device,
          ...(pinned ? { pinned } : {}),
        }),
        options,
      );
    },
  ),
);

/**
 * A row-major tensor in the shape, dtype and device of `input`, unless options say otherwise, whose
 * values are undefined. Errors as {@link empty}.
 *
 * @see PyTorch `torch.empty_like`
 */
export const emptyLike = defineFunction(
  'emptyLike(input, /, *, dtype, device, requiresGrad, pinMemory)',
  (input: Tensor, options: TensorOptions = {}): Tensor => {
    requireTensor(input, 'emptyLike');
    optionsOf('emptyLike', options, TENSOR_OPTIONS);
    return newEmpty(input, input.shape, options);
  },
);

/** Memory of any shape, else as `input`. @internal */
export function newEmpty(input: Tensor, size: Shape, options: TensorOptions): Tensor {
  if (input.sharding === null)
    return empty(size, { dtype: input.dtype, device: input.device, ...options });
  checkSizes(size, 'newEmpty');
  placed(options, 'newEmpty');
  return finish(
    input.sharding.empty(size, requireDtype(options.dtype, 'newEmpty') ?? input.dtype),
    options,
  );
}
