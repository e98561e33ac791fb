/** Shared by attention tests: a result with its gradients, and tolerances. */
import assert from 'node:assert/strict';
import { bfloat16, type DType, float16, float32, float64, type Tensor } from '../../lib/index.js';

/** Tolerance as a fraction of the largest value. */
export const room: ReadonlyMap<DType, number> = new Map<DType, number>([
  [float16, 4e-3],
  [bfloat16, 3e-2],
  [float32, 1e-5],
  [float64, 1e-12],
]);

export type Operands = [q: Tensor, k: Tensor, v: Tensor];

/**
 * Minimal size for the tolerance: with one key the gradient of q is 0 except for 16-bit rounding.
 */
const LEAST = 0.01;

export const flat = (t: Tensor): number[] => t.to(float64).flatten().tolist() as number[];

/** `part`: tolerance as a fraction of the largest expected value. */
export function near(got: Tensor, want: Tensor, part: number, what: string): void {
  const [a, b] = [flat(got.cpu()), flat(want)];
  const largest = b.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  const wrong = a.findIndex(
    (value, i) => !(Math.abs(value - (b[i] as number)) <= part * (largest + LEAST)),
  );
  assert.equal(wrong, -1, `${what}: element ${wrong} is ${a[wrong]}, expected ${b[wrong]}`);
}

/** The result, then the gradients of the operands. */
export function withGradients(
  operands: Operands,
  g: Tensor,
  compute: (operands: Operands) => Tensor,
): Tensor[] {
  const leaves = operands.map((t) => t.detach().requiresGrad_()) as Operands;
  const out = compute(leaves);
  out.backward(g);
  return [out.detach(), ...leaves.map((leaf) => leaf.grad as Tensor)];
}
