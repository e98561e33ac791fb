/** Arguments and results as trees of arrays and plain objects with tensors at the leaves. */
import { Tensor } from '../core/tensor.js';

/** Rebuilds a value with every tensor replaced. */
export function mapTensors(value: unknown, replace: (t: Tensor) => unknown): unknown {
  if (value instanceof Tensor) return replace(value);
  if (Array.isArray(value)) return value.map((item) => mapTensors(item, replace));
  if (isPlain(value))
    return Object.fromEntries(
      Object.entries(value).map(([key, item]) => [key, mapTensors(item, replace)]),
    );
  return value;
}

/** All tensors of a value, in order. */
export function tensorsIn(value: unknown): Tensor[] {
  const found: Tensor[] = [];
  collect(value, found);
  return found;
}

function collect(value: unknown, found: Tensor[]): void {
  if (value instanceof Tensor) found.push(value);
  else if (Array.isArray(value)) for (const item of value) collect(item, found);
  else if (isPlain(value)) for (const name of Object.keys(value)) collect(value[name], found);
}

/** Whether a value is a plain object. */
export function isPlain(value: unknown): value is Record<string, unknown> {
  return (
    typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype
  );
}
