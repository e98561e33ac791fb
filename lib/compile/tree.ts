/** Arguments and results as trees: tensors at the leaves, arrays and plain objects around them. */
import { Tensor } from '../core/tensor.js';

/** Rebuilds a value with every tensor replaced. */
export function mapTensors(value: unknown, replace: (t: Tensor) => unknown): unknown {
  if (value instanceof Tensor) return replace(value);
  if (Array.isArray(value)) return value.map((item) => mapTensors(item, replace));
  if (isPlain(value)) return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, mapTensors(item, replace)]));
  return value;
}

/** All tensors of a value, in order. */
export function tensorsIn(value: unknown): Tensor[] {
  const found: Tensor[] = [];
  mapTensors(value, (t) => {
    found.push(t);
    return t;
  });
  return found;
}

export function isPlain(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype;
}
