/** The weights of seeded_weights.py, bit for bit. */
import * as sw from '../../lib/index.js';
import type { DeviceName, Tensor } from './tensors.js';

/** Name to shape, offset, scale. */
export type Described = Record<string, [shape: number[], offset: number, scale: number]>;

/** Uniform multiples of 2^-32 in [0, 1). */
export function mulberry32(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Every parameter, in order. */
export function seededWeights(
  described: Described,
  seed: number,
  device: DeviceName,
): Map<string, Tensor> {
  const next = mulberry32(seed);
  const weights = new Map<string, Tensor>();
  for (const [name, [shape, offset, scale]] of Object.entries(described)) {
    const count = shape.reduce((product, size) => product * size, 1);
    const values = Float32Array.from({ length: count }, () => offset + scale * (2 * next() - 1));
    weights.set(name, sw.tensor(values, { dtype: sw.float32, device }).reshape(shape));
  }
  return weights;
}

/** `self_attn.in_proj_weight` to `selfAttn.inProjWeight`. */
export function camelCase(name: string): string {
  return name.replace(/(?<=[A-Za-z0-9])_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
}
