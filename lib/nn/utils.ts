/** Gradient clipping, and parameters as one vector. */
import { noGrad } from '../autograd/grad-mode.js';
import { AutogradError } from '../core/errors.js';
import type { Tensor } from '../core/tensor.js';
import { cat, stack } from '../ops/join.js';
import { foreachNorm } from '../ops/optimizer-steps.js';

/** Options of {@link clipGradNorm_}. */
export interface ClipOptions {
  normType?: number;
  /** Throw if the norm is NaN or infinite; this reads a value and so blocks. */
  errorIfNonfinite?: boolean;
}

function gradientsOf(parameters: Iterable<Tensor>): Tensor[] {
  return [...parameters].flatMap((p) => (p.gradTensor === null ? [] : [p.gradTensor]));
}

/** The norm of all gradients together. */
export function getTotalNorm(tensors: readonly Tensor[], normType = 2): Tensor {
  return noGrad(() => {
    const norms = normType === 2 ? cat(foreachNorm(tensors)) : stack(tensors.map((t) => t.norm(normType)));
    return norms.norm(normType);
  });
}

/**
 * Scales gradients in place so that their common norm is at most `maxNorm`. Returns the norm before.
 *
 * @throws AutogradError if the norm is not finite and `errorIfNonfinite` is set
 * @see PyTorch `torch.nn.utils.clip_grad_norm_`
 */
export function clipGradNorm_(parameters: Tensor | Iterable<Tensor>, maxNorm: number, { normType = 2, errorIfNonfinite = false }: ClipOptions = {}): Tensor {
  const grads = gradientsOf(Symbol.iterator in (parameters as object) ? (parameters as Iterable<Tensor>) : [parameters as Tensor]);
  return noGrad(() => {
    if (grads.length === 0) throw new AutogradError('clipGradNorm_: no parameter has a gradient');
    const total = getTotalNorm(grads, normType);
    if (errorIfNonfinite && !total.isfinite().item<boolean>()) throw new AutogradError(`clipGradNorm_: the norm of the gradients is ${total.item()}`);
    const factor = total.add(1e-6).reciprocal().mul(maxNorm).clamp({ max: 1 });
    for (const g of grads) g.mul_(factor.dtype === g.dtype ? factor : factor.to(g.dtype));
    return total;
  });
}

/** Limits each element of the gradients to [-clipValue, clipValue], in place. */
export function clipGradValue_(parameters: Iterable<Tensor>, clipValue: number): void {
  noGrad(() => {
    for (const g of gradientsOf(parameters)) g.clamp_({ min: -clipValue, max: clipValue });
  });
}

/** All parameters as one vector. */
export function parametersToVector(parameters: Iterable<Tensor>): Tensor {
  return cat([...parameters].map((p) => p.reshape(-1)));
}

/** Copies a vector into the parameters, in order. */
export function vectorToParameters(vector: Tensor, parameters: Iterable<Tensor>): void {
  noGrad(() => {
    let at = 0;
    for (const p of parameters) {
      p.copy_(vector.narrow(0, at, p.numel()).reshape(p.shape));
      at += p.numel();
    }
  });
}
