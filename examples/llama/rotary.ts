/**
 * Rotary position embeddings, as Hugging Face lays them out: feature i of a head is paired with
 * feature i + headDim / 2.
 */
import { arange, cat, type Device, float32, type Tensor, tensor } from '../../lib/index.js';
import type { LlamaConfig, RopeScaling } from './config.js';

/** Cosines and sines of the angles, `[T, headDim / 2]` each. */
export type Rotation = readonly [cos: Tensor, sin: Tensor];

/** Radians per position of each pair of features. */
export function frequencies({ headDim, ropeTheta, ropeScaling }: LlamaConfig): number[] {
  return Array.from({ length: headDim / 2 }, (_, i) =>
    scaled(ropeTheta ** ((-2 * i) / headDim), ropeScaling),
  );
}

function scaled(frequency: number, scaling: RopeScaling): number {
  if (scaling.type === 'default') return frequency;
  if (scaling.type === 'linear') return frequency / scaling.factor;
  // Slow pairs are stretched, fast ones stay, and those between change over smoothly.
  const { factor, lowFreqFactor, highFreqFactor, originalMaxPositions } = scaling;
  const turns = (originalMaxPositions * frequency) / (2 * Math.PI);
  if (turns < lowFreqFactor) return frequency / factor;
  if (turns > highFreqFactor) return frequency;
  const share = (turns - lowFreqFactor) / (highFreqFactor - lowFreqFactor);
  return ((1 - share) * frequency) / factor + share * frequency;
}

/** The rotation of the positions from 0 to `length`. */
export function rotationOf(config: LlamaConfig, length: number, device: Device): Rotation {
  const positions = arange(length, { dtype: float32, device }).unsqueeze(1);
  const angles = positions.mul(tensor(frequencies(config), { dtype: float32, device }));
  return [angles.cos(), angles.sin()];
}

/** Rotates each pair of features of heads `[B, H, T, headDim]`. */
export function rotate(x: Tensor, [cos, sin]: Rotation): Tensor {
  const [first, second] = x.chunk(2, -1) as [Tensor, Tensor];
  return cat([first.mul(cos).sub(second.mul(sin)), second.mul(cos).add(first.mul(sin))], -1);
}
