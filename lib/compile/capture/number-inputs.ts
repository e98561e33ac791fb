/**
 * Plain numbers that are inputs of a graph. A number that JavaScript reads may decide what the
 * graph is, so that it cannot be one.
 */
import { Tensor, wrapNumber } from '../../core/tensor.js';

/** Whether the value is a plain number, which has no memory. */
export const isPlainNumber = (t: Tensor): boolean => t.storage === null;

/** Whether an input of a graph is a plain number. */
export const isNumberInput = (value: unknown): value is Tensor =>
  value instanceof Tensor && isPlainNumber(value);

/** Another number of the same value, for a capture, that calls `read` when JavaScript reads it. */
export function observedNumber(t: Tensor, read: () => void): Tensor {
  const { scalarValue, dtype, device } = t;
  const observed = wrapNumber(scalarValue, dtype, device);
  const get = (): number => {
    read();
    return scalarValue;
  };
  return Object.defineProperty(observed, 'scalarValue', { get });
}
