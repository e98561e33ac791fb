/** The tensors of a state dict: taken out of it to be saved, and put back into what was loaded. */
import { ArgumentError } from '../../core/errors.js';
import { Tensor } from '../../core/tensor.js';
import { isRecord, joined, mapMembers } from './paths.js';

const TENSOR = '$tensor';

/** Whether an object of the program looks like the place of a tensor; it is nested in one. */
const isLikePlace = (value: unknown): value is { [TENSOR]: unknown } =>
  isRecord(value) && TENSOR in value && Object.keys(value).length === 1;

/**
 * A copy of a state with the paths of tensors in their places. @throws ArgumentError for two
 * tensors of one path
 */
export function withoutTensors(value: unknown, path: string, found: Map<string, Tensor>): unknown {
  if (value instanceof Tensor) {
    if (found.has(path))
      throw new ArgumentError(
        `the state has "${path}" twice: names with dots can mean the same path`,
        { path },
      );
    found.set(path, value);
    return { [TENSOR]: path };
  }
  const rest = mapMembers(value, (name, each) => withoutTensors(each, joined(path, name), found));
  return isLikePlace(value) ? { [TENSOR]: rest } : rest;
}

export function withTensors(value: unknown, tensors: ReadonlyMap<string, Tensor>): unknown {
  const place = isLikePlace(value) ? value[TENSOR] : undefined;
  if (typeof place === 'string' && tensors.has(place)) return tensors.get(place);
  return mapMembers(isRecord(place) ? place : value, (_, each) => withTensors(each, tensors));
}
