/** Waiting for the result of a collective, as an op: a node of lowered graphs. */
import type { Op } from '../core/op.js';
import { defineView } from './define-view.js';
import { sampleTensor } from './samples.js';
import { sameDims, viewRule } from './sharding/views.js';

/**
 * The result of a collective, ready to be read. Ops run after the collective in stream order, so
 * nothing waits; the node says where the first reader is.
 *
 * @internal
 */
export const waitTensorOp: Op<object> = defineView({
  name: 'waitTensor',
  doc: 'The result of a collective, ready to be read.',
  traits: ['wait'],
  sharding: viewRule<object>((input) => sameDims(input.sizes.length)),
  view: (input) => ({ shape: input.sizes, strides: input.strides, offset: input.storageOffset }),
  vjp: (_, g) => [g],
  samples: () => [{ inputs: [sampleTensor([3])], params: {} }],
});
