/** The differences between two answers. */
import { type Answer, type Description, decode, type Scalar } from './program.js';

/** PyTorch's tolerances, `torch.testing.assert_close`. */
const tolerances: Readonly<Record<string, readonly [relative: number, absolute: number]>> = {
  float64: [1e-7, 1e-7],
  float32: [1.3e-6, 1e-5],
  float16: [1e-3, 1e-5],
  bfloat16: [1.6e-2, 1e-5],
};

/** The first difference as text; null if the answers agree. */
export function difference(ours: Answer, peers: Answer): string | null {
  const [a, b] = [ours.refused, peers.refused].map((list) => list.join(', '));
  if (a !== b) return `steps refused here: [${a}], by the peer: [${b}]`;
  if (ours.tensors.length !== peers.tensors.length)
    return `${ours.tensors.length} tensors, of the peer ${peers.tensors.length}`;
  for (const [i, own] of ours.tensors.entries()) {
    const peer = peers.tensors[i] ?? null;
    const found = own === null || peer === null ? null : ofTensors(own, peer);
    if (found !== null) return `tensor ${i}: ${found}`;
  }
  if (ours.kept.length !== peers.kept.length)
    return `hooks kept ${ours.kept.length} gradients, of the peer ${peers.kept.length}`;
  for (const [i, own] of ours.kept.entries()) {
    if (!alike(own, peers.kept[i] as readonly Scalar[], 'float64'))
      return `kept gradient ${i}: [${own}], of the peer [${peers.kept[i]}]`;
  }
  return null;
}

/**
 * The first step that only the peer refuses, unless an earlier one is refused only here; later
 * steps cannot be compared. Null without such a step.
 */
export function acceptedHere(ours: Answer, peers: Answer): number | null {
  const onlyIn = (a: readonly number[], b: readonly number[]): number =>
    a.find((step) => !b.includes(step)) ?? Number.POSITIVE_INFINITY;
  const there = onlyIn(peers.refused, ours.refused);
  return there < onlyIn(ours.refused, peers.refused) ? there : null;
}

function ofTensors(own: Description, peers: Description): string | null {
  for (const property of ['dtype', 'shape', 'requiresGrad', 'isLeaf'] as const) {
    if (String(own[property]) !== String(peers[property]))
      return `${property} ${own[property]}, of the peer ${peers[property]}`;
  }
  if (!alike(own.values, peers.values, own.dtype))
    return `[${own.values}], of the peer [${peers.values}]`;
  if ((own.grad === null) !== (peers.grad === null))
    return `grad [${own.grad}], of the peer [${peers.grad}]`;
  if (own.grad !== null && peers.grad !== null && !alike(own.grad, peers.grad, own.dtype))
    return `grad [${own.grad}], of the peer [${peers.grad}]`;
  return null;
}

function alike(a: readonly Scalar[], b: readonly Scalar[], dtype: string): boolean {
  const [relative, absolute] = tolerances[dtype] ?? [0, 0];
  const close = (x: number, y: number): boolean =>
    Object.is(x, y) || x === y || Math.abs(x - y) <= absolute + relative * Math.abs(y);
  return a.length === b.length && a.every((x, i) => close(decode(x), decode(b[i] as Scalar)));
}
