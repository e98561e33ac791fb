/** Makes `expect(a).toEqual(b)` of vitest and jest compare tensors by their values. */
import { AssertionError } from 'node:assert';
import { absenceOf } from '../../core/absent.js';
import { Tensor } from '../../core/tensor.js';
import { assertClose } from './assert-close.js';

/**
 * A tester for `expect.addEqualityTesters([tensorEquality])` of vitest and jest, in a setup file:
 * `toEqual`, `toStrictEqual`, `toContainEqual` and calls of mocks then compare tensors, at any
 * depth, by shape, dtype, device and exact values. NaN equals NaN, as in `toEqual`, and 0 equals
 * -0, as in `torch.equal`. Blocks until the values are known.
 *
 * @returns undefined for two values of which none is a tensor, which the runner compares itself
 * @throws DistributedError for a collective that `local` ranks cannot wait for: use
 * {@link assertCloseAsync}
 * @example
 * tensorEquality(tensor([1, 2]), ones([2]).add(tensor([0, 1]))); // true
 */
export function tensorEquality(a: unknown, b: unknown): boolean | undefined {
  if (!(a instanceof Tensor) && !(b instanceof Tensor)) return undefined;
  const isEqual = a instanceof Tensor && b instanceof Tensor && areEqual(a, b);
  if (!isEqual) letJestCopy();
  return isEqual;
}

function areEqual(a: Tensor, b: Tensor): boolean {
  if (a === b) return true;
  try {
    assertClose(a, b, { rtol: 0, atol: 0, equalNan: true });
    return true;
  } catch (error) {
    if (error instanceof AssertionError) return false;
    throw error;
  }
}

/**
 * Getters that give another tensor, which has them too, or that throw: for tensors of few dims, for
 * indices, and for names of PyTorch.
 */
const isUncopied = (name: string, getter: object): boolean =>
  /^(T|data|length|mT|-?\d+)$/.test(name) || absenceOf(getter) !== undefined;
let isCopyable = false;

/** To print a difference, jest copies a tensor with what its getters give. */
function letJestCopy(): void {
  if (isCopyable) return;
  isCopyable = true;
  const descriptors = Object.getOwnPropertyDescriptors(Tensor.prototype);
  for (const [name, descriptor] of Object.entries(descriptors)) {
    const original = descriptor.get;
    if (original === undefined || !isUncopied(name, original)) continue;
    const get = function (this: Tensor): unknown {
      const isCopied = new Error().stack?.includes('deepCyclicCopy');
      return isCopied ? undefined : original.call(this);
    };
    Object.defineProperty(Tensor.prototype, name, { ...descriptor, get });
  }
}
