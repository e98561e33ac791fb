/**
 * Sample inputs for the tests that the op table generates: uneven, empty, transposed and
 * one-element tensors.
 */

import { getDefaultDevice } from '../core/device.js';
import { type DType, float32 } from '../core/dtype.js';
import type { Sample } from '../core/op.js';
import { numelOf, type Shape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { encodeValues } from '../core/values.js';
import { makeFromValues } from './construct.js';

/** Repeatable values in [low, high), all different and unordered. */
export function sampleTensor(
  shape: Shape,
  {
    low = -2,
    high = 2,
    dtype = float32,
    seed = 1,
  }: { low?: number; high?: number; dtype?: DType; seed?: number } = {},
): Tensor {
  let state = seed * 2654435761;
  const data = Array.from({ length: numelOf(shape) }, () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    const unit = ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
    const value = low + unit * (high - low);
    return dtype.isFloatingPoint ? value : Math.floor(value);
  });
  return makeFromValues(encodeValues(data, dtype), shape, dtype, getDefaultDevice());
}

/** Shapes that every op should take: a vector, uneven dims, one element, no elements. */
const shapes: readonly Shape[] = [[5], [3, 4], [2, 1, 7], [], [0, 3]];

/** Samples of an op of one tensor. */
export function unarySamples<P>(
  params: P,
  range: { low?: number; high?: number; dtype?: DType } = {},
): () => Sample<P>[] {
  return () => shapes.map((shape) => ({ inputs: [sampleTensor(shape, range)], params }));
}

/** Samples of an op of two tensors, broadcasting included. */
export function binarySamples<P>(
  params: P,
  first: { low?: number; high?: number; dtype?: DType } = {},
  second = first,
): () => Sample<P>[] {
  const pairs: [Shape, Shape][] = [
    [[5], [5]],
    [
      [3, 4],
      [3, 4],
    ],
    [[3, 4], [4]],
    [
      [2, 1, 3],
      [1, 4, 1],
    ],
    [[3], []],
    [
      [0, 2],
      [1, 2],
    ],
  ];
  return () =>
    pairs.map(([a, b]) => ({
      inputs: [sampleTensor(a, first), sampleTensor(b, { ...second, seed: 7 })],
      params,
    }));
}
