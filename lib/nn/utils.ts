/** Gradient clipping, and parameters as one vector. */
import { noGrad } from '../autograd/grad-mode.js';
import { ArgumentError, AutogradError, ShapeError } from '../core/errors.js';
import { checkLimit, listOf, optionsOf } from '../core/options.js';
import { Tensor } from '../core/tensor.js';
import { tensor } from '../ops/factories.js';
import { cat, stack } from '../ops/join.js';
import { requireTensor, requireTensors } from '../ops/operand.js';
import { pad } from '../ops/padding.js';
import { normOfAll } from './total-norm.js';

/** Options of {@link clipGradNorm_}. */
export interface ClipOptions {
  normType?: number;
  /** Throw if the norm is NaN or infinite; this reads a value and so blocks. */
  errorIfNonfinite?: boolean;
}

/** A tensor can be iterated over too, so it is asked for first. */
function tensorsOf(op: string, parameters: Tensor | Iterable<Tensor>): Tensor[] {
  if (parameters instanceof Tensor) return [parameters];
  const list = listOf(op, 'parameters', 'a tensor, or some to iterate over', parameters);
  requireTensors(list, op, 'parameters');
  return list;
}

function gradientsOf(op: string, parameters: Tensor | Iterable<Tensor>): Tensor[] {
  return tensorsOf(op, parameters).flatMap((p) => (p.gradTensor === null ? [] : [p.gradTensor]));
}

/** The norm of all gradients together; of distributed ones, whole and plain on every rank, for one reduction among those that are held alike. */
export function getTotalNorm(tensors: readonly Tensor[], normType = 2): Tensor {
  requireTensors(tensors, 'getTotalNorm');
  checkLimit('getTotalNorm', 'normType', normType);
  if (tensors.length === 0) return tensor(0);
  return noGrad(() => normOfAll(tensors, normType));
}

/**
 * Scales gradients in place so that their common norm is at most `maxNorm`. Returns the norm before.
 *
 * @throws AutogradError if the norm is not finite and `errorIfNonfinite` is set
 * @see PyTorch `torch.nn.utils.clip_grad_norm_`
 */
export function clipGradNorm_(parameters: Tensor | Iterable<Tensor>, maxNorm: number, options: ClipOptions = {}): Tensor {
  const { normType = 2, errorIfNonfinite = false } = optionsOf('clipGradNorm_', options, 'normType errorIfNonfinite');
  checkLimit('clipGradNorm_', 'maxNorm', maxNorm);
  checkLimit('clipGradNorm_', 'normType', normType);
  const grads = gradientsOf('clipGradNorm_', parameters);
  return noGrad(() => {
    if (grads.length === 0) return tensor(0);
    const total = getTotalNorm(grads, normType);
    if (errorIfNonfinite && !total.isfinite().item<boolean>()) throw new AutogradError(`clipGradNorm_: the norm of the gradients is ${total.item()}`);
    const factor = total.add(1e-6).reciprocal().mul(maxNorm).clamp({ max: 1 });
    for (const g of grads) g.mul_(factor.dtype === g.dtype ? factor : factor.to(g.dtype));
    return total;
  });
}

/** Limits each element of the gradients to [-clipValue, clipValue], in place. */
export function clipGradValue_(parameters: Tensor | Iterable<Tensor>, clipValue: number): void {
  checkLimit('clipGradValue_', 'clipValue', clipValue);
  const grads = gradientsOf('clipGradValue_', parameters);
  noGrad(() => {
    for (const g of grads) g.clamp_({ min: -clipValue, max: clipValue });
  });
}

/** All parameters as one vector. */
export function parametersToVector(parameters: Iterable<Tensor>): Tensor {
  return cat(tensorsOf('parametersToVector', parameters).map((p) => p.reshape(-1)));
}

/** Copies a vector into the parameters, in order. @throws ShapeError unless the vector has as many elements */
export function vectorToParameters(vector: Tensor, parameters: Iterable<Tensor>): void {
  requireTensor(vector, 'vectorToParameters', 'vector');
  const list = tensorsOf('vectorToParameters', parameters);
  const total = list.reduce((n, p) => n + p.numel(), 0);
  if (vector.numel() !== total) throw new ShapeError(`vectorToParameters: a vector of ${vector.numel()} elements for parameters of ${total}`, { expected: total });
  noGrad(() => {
    let at = 0;
    for (const p of list) {
      p.copy_(vector.narrow(0, at, p.numel()).reshape(p.shape));
      at += p.numel();
    }
  });
}

/** Options of {@link padSequence}. */
export interface PadSequenceOptions {
  /** `[batch, longest, ...]` instead of `[longest, batch, ...]`. */
  batchFirst?: boolean;
  paddingValue?: number;
}

/** Sequences of different lengths as one tensor, the shorter ones padded. @throws ArgumentError for an empty list @see PyTorch `nn.utils.rnn.pad_sequence` */
function padSequence(sequences: readonly Tensor[], options: PadSequenceOptions = {}): Tensor {
  const { batchFirst = false, paddingValue = 0 } = optionsOf('padSequence', options, 'batchFirst paddingValue');
  requireTensors(sequences, 'padSequence', 'sequences');
  if (sequences.length === 0) throw new ArgumentError('padSequence: expected at least one sequence');
  const longest = Math.max(...sequences.map((t) => t.size(0)));
  const padded = sequences.map((t) => pad(t, [...Array<number>(2 * (t.ndim - 1)).fill(0), 0, longest - t.size(0)], { value: paddingValue }));
  return stack(padded, batchFirst ? 0 : 1);
}

/** Tools for sequences. */
export const rnn = { padSequence };
