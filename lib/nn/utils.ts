/** The `nn.utils` namespace: gradient clipping, parameters as a vector, padded sequences. */
import { noGrad } from '../autograd/grad-mode.js';
import { calledAs } from '../core/call-context.js';
import { ArgumentError, AutogradError, ShapeError } from '../core/errors.js';
import { checkFlag, checkLimit, listOf } from '../core/options.js';
import { gradOf } from '../core/set-grad.js';
import { defineFunction } from '../core/signature.js';
import { Tensor } from '../core/tensor.js';
import { tensor } from '../ops/from-values.js';
import { cat, stack } from '../ops/join.js';
import { requireTensor, requireTensors } from '../ops/operand.js';
import { pad } from '../ops/padding.js';
import { normOfAll } from './total-norm.js';

export * from '../core/absent-names/utils.js';

/** The parameters as a list. A tensor is iterable, too, so it is tested first. */
function tensorsOf(op: string, parameters: Tensor | Iterable<Tensor>): Tensor[] {
  if (parameters instanceof Tensor) return [parameters];
  const list = listOf(op, 'parameters', 'a tensor, or tensors to iterate over', parameters);
  requireTensors(list, op, 'parameters');
  return list;
}

function gradientsOf(op: string, parameters: Tensor | Iterable<Tensor>): Tensor[] {
  return tensorsOf(op, parameters).flatMap((p) => gradOf(p) ?? []);
}

/** @throws AutogradError if a norm is not finite. Reads a value, and so blocks. */
function checkFinite(op: string, total: Tensor): void {
  const advice =
    'Leave out errorIfNonfinite, and read the norm that it returns by `await norm.itemAsync()`.';
  const norm = calledAs(op, () => total.item<number>(), advice);
  if (Number.isFinite(norm)) return;
  throw new AutogradError(
    `${op}: expected gradients of a finite norm, got ${norm}. autograd.setDetectAnomaly(true) ` +
      'finds the op whose gradient is NaN. Without errorIfNonfinite the gradients are scaled by ' +
      'this norm.',
    { op, norm },
  );
}

/**
 * The norm of all gradients together, as a plain tensor that is equal on every rank. Distributed
 * tensors with equal mesh and placements share one all-reduce. `foreach` selects an implementation
 * in PyTorch and is ignored here.
 *
 * @throws AutogradError if the norm is not finite and `errorIfNonfinite` is true
 * @see PyTorch `torch.nn.utils.get_total_norm`
 */
export const getTotalNorm = defineFunction(
  'getTotalNorm(tensors, /, normType, errorIfNonfinite, foreach)',
  (
    tensors: readonly Tensor[],
    normType = 2,
    errorIfNonfinite = false,
    _foreach: boolean | null = null,
  ): Tensor => {
    requireTensors(tensors, 'getTotalNorm');
    checkLimit('getTotalNorm', 'normType', normType);
    checkFlag('getTotalNorm', 'errorIfNonfinite', errorIfNonfinite);
    const total = tensors.length === 0 ? tensor(0) : noGrad(() => normOfAll(tensors, normType));
    if (errorIfNonfinite) checkFinite('getTotalNorm', total);
    return total;
  },
);

/**
 * Scales gradients in place so that their total norm is at most `maxNorm`. Returns the norm before.
 * `foreach` is ignored, see {@link getTotalNorm}.
 *
 * @throws AutogradError if the norm is not finite and `errorIfNonfinite` is true, which reads a
 * value and so blocks
 * @see PyTorch `torch.nn.utils.clip_grad_norm_`
 * @example
 * const w = ones([1], { requiresGrad: true });
 * w.mul(5).sum().backward();
 * const norm = nn.utils.clipGradNorm_([w], 1);
 * norm; // 5
 * w.grad; // [1]
 */
export const clipGradNorm_ = defineFunction(
  'clipGradNorm_(parameters, /, maxNorm, normType, errorIfNonfinite, foreach)',
  (
    parameters: Tensor | Iterable<Tensor>,
    maxNorm: number,
    normType = 2,
    errorIfNonfinite = false,
    _foreach: boolean | null = null,
  ): Tensor => {
    checkLimit('clipGradNorm_', 'maxNorm', maxNorm);
    checkLimit('clipGradNorm_', 'normType', normType);
    checkFlag('clipGradNorm_', 'errorIfNonfinite', errorIfNonfinite);
    const grads = gradientsOf('clipGradNorm_', parameters);
    return noGrad(() => {
      if (grads.length === 0) return tensor(0);
      const total = getTotalNorm(grads, normType);
      if (errorIfNonfinite) checkFinite('clipGradNorm_', total);
      const factor = total.add(1e-6).reciprocal().mul(maxNorm).clamp({ max: 1 });
      for (const g of grads) g.mul_(factor.dtype === g.dtype ? factor : factor.to(g.dtype));
      return total;
    });
  },
);

/**
 * Clamps each element of the gradients to [-clipValue, clipValue], in place. `foreach` is ignored,
 * see {@link getTotalNorm}. @see PyTorch `torch.nn.utils.clip_grad_value_`
 */
export const clipGradValue_ = defineFunction(
  'clipGradValue_(parameters, /, clipValue, foreach)',
  (
    parameters: Tensor | Iterable<Tensor>,
    clipValue: number,
    _foreach: boolean | null = null,
  ): void => {
    checkLimit('clipGradValue_', 'clipValue', clipValue);
    const grads = gradientsOf('clipGradValue_', parameters);
    noGrad(() => {
      for (const g of grads) g.clamp_({ min: -clipValue, max: clipValue });
    });
  },
);

/** All parameters as one vector. */
export function parametersToVector(parameters: Iterable<Tensor>): Tensor {
  return cat(tensorsOf('parametersToVector', parameters).map((p) => p.reshape(-1)));
}

/**
 * Copies a vector into the parameters, in order. @throws ShapeError if the number of elements
 * differs
 */
export function vectorToParameters(vector: Tensor, parameters: Iterable<Tensor>): void {
  requireTensor(vector, 'vectorToParameters', 'vector');
  const list = tensorsOf('vectorToParameters', parameters);
  const total = list.reduce((n, p) => n + p.numel(), 0);
  if (vector.numel() !== total)
    throw new ShapeError(
      `vectorToParameters: expected a vector of ${total} elements, one for each of the ` +
        `parameters, got ${vector.numel()}`,
      { expected: total },
    );
  noGrad(() => {
    let at = 0;
    for (const p of list) {
      p.copy_(vector.narrow(0, at, p.numel()).reshape(p.sizes));
      at += p.numel();
    }
  });
}

/**
 * Stacks sequences of different lengths and pads the shorter ones with `paddingValue`. The result
 * is `[longest, batch, ...]`, or `[batch, longest, ...]` with `batchFirst`.
 *
 * @throws ArgumentError if the list is empty
 * @see PyTorch `nn.utils.rnn.pad_sequence`
 */
const padSequence = defineFunction(
  'padSequence(sequences, /, batchFirst, paddingValue)',
  (sequences: readonly Tensor[], batchFirst = false, paddingValue = 0): Tensor => {
    checkFlag('padSequence', 'batchFirst', batchFirst);
    requireTensors(sequences, 'padSequence', 'sequences');
    if (sequences.length === 0)
      throw new ArgumentError('padSequence: expected at least one sequence');
    const longest = Math.max(...sequences.map((t) => t.size(0)));
    const padded = sequences.map((t) =>
      pad(t, [...Array<number>(2 * (t.ndim - 1)).fill(0), 0, longest - t.size(0)], {
        value: paddingValue,
      }),
    );
    return stack(padded, batchFirst ? 0 : 1);
  },
);

/** The `nn.utils.rnn` namespace: sequences of different lengths. */
export const rnn = { padSequence };
