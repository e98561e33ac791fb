/** The tensors that modules hold as their parameters: the sharded ones, or whole ones. */
import { nn, type Tensor } from '../../index.js';
import type { WholeOfForward } from './ops.js';
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

/** Modules hold whole parameters in the form that they use: with tensor parallelism distributed. */
export function placeUsed(
  parameters: readonly ShardedParameter[],
  whole: readonly Tensor[],
): readonly Tensor[] {
  const used = whole.map((t, i) => (parameters[i] as ShardedParameter).asUsed(t));
  placeWhole(parameters, used);
  return used;
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

/** What modules hold in backward: the whole parameters of the forward to which it has come. */
export class WholeInBackward {
  private readonly parameters: readonly ShardedParameter[];
  private whole: WholeOfForward = null;
  private isPlaced = false;

  constructor(parameters: readonly ShardedParameter[]) {
    this.parameters = parameters;
  }

  /** An activation checkpoint in the module runs its forward again, without hooks. */
  comesTo(whole: WholeOfForward): void {
    this.whole = whole;
    if (whole !== null) this.place(whole);
  }

  /** A forward runs in backward. `lasting`: the parameters that graphs use. */
  place(lasting: readonly Tensor[]): void {
    if (this.whole === null) placeUsed(this.parameters, lasting);
    else placeWhole(this.parameters, this.whole);
    this.isPlaced = true;
  }

  /** Backward is done with the forward. */
  leave(): void {
    if (this.isPlaced) placeSharded(this.parameters);
    this.isPlaced = false;
    this.whole = null;
  }
}
