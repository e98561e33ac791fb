/** The tensors that modules hold as their parameters: the sharded ones, or whole ones. */
import { nn, type Tensor } from '../../index.js';
import type { ShardedParameter } from './sharded-parameter.js';

/** Modules hold the parameters that optimizers have. */
export function placeSharded(parameters: readonly ShardedParameter[]): void {
  for (const parameter of parameters) parameter.set(parameter.parameter);
}

/** Modules hold the whole parameters of a forward. */
export function placeWhole(
  parameters: readonly ShardedParameter[],
  whole: readonly Tensor[],
): void {
  for (const [i, t] of whole.entries()) parameters[i]?.set(t);
}

/** Whole parameters as modules use them: with tensor parallelism distributed ones. */
export function asUsed(
  parameters: readonly ShardedParameter[],
  whole: readonly Tensor[],
): readonly Tensor[] {
  return whole.map((t, i) => (parameters[i] as ShardedParameter).asUsed(t));
}

/** Modules hold whole parameters without history, to be read or written. */
export function placeAsParameters(
  parameters: readonly ShardedParameter[],
  whole: readonly Tensor[],
): void {
  for (const [i, t] of whole.entries()) {
    const each = parameters[i] as ShardedParameter;
    const parameter = new nn.Parameter(each.asUsed(t), each.parameter.requiresGrad);
    parameter.replacedBecause =
      `"${each.path}" is whole only until reshard(). Make the optimizer outside of unshard() ` +
      'and reshard().';
    each.set(parameter);
  }
}

/** The last forward with gradients, for a second run in backward. */
export interface RecordedForward {
  readonly whole: readonly Tensor[];
  /** Whether a graph runs it: modules keep the sharded parameters. */
  readonly isInGraph: boolean;
}

export const NOT_RECORDED: RecordedForward = { whole: [], isInGraph: false };
