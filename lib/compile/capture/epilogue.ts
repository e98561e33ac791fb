/**
 * What a lowered graph leaves to the end of each run, because it is no op on local tensors: leaves
 * that the function makes, gradients that it keeps, and attributes of modules that it sets.
 */
import type { Tensor } from '../../core/tensor.js';
import type { Recorder } from './recorder.js';

/** An attribute of a module that is set. */
export interface AttributeSet {
  readonly module: object;
  readonly name: string;
  /** The value, unless it is a tensor. */
  readonly value: unknown;
}

export class Epilogue {
  /** New leaves, each with the tensor on whose memory it is; itself after `requiresGrad_`. */
  readonly leaves = new Map<Tensor, Tensor>();
  /** Tensors whose gradients are kept although they are no leaves. */
  readonly retained = new Set<Tensor>();
  /** In order, with the tensor that is set. The keys are the parameters of their nodes. */
  readonly attributes = new Map<AttributeSet, Tensor | null>();

  /** A new tensor starts or stops requiring a gradient. */
  requireGrad(recorder: Recorder, t: Tensor, value: boolean): void {
    checkNew(recorder, t, 'requiresGrad_() changed');
    if (value && !this.leaves.has(t)) this.leaves.set(t, t);
    else if (!value && this.leaves.get(t) === t) this.leaves.delete(t);
  }

  /** A parameter is made on the memory of a tensor. */
  makeParameter(recorder: Recorder, made: Tensor, data: Tensor): void {
    checkNew(recorder, made, 'a Parameter was made of');
    recorder.define(made, recorder.valueOf(data));
    this.leaves.set(made, data);
  }
}

function checkNew(recorder: Recorder, t: Tensor, what: string): void {
  if (t.sharding !== null) recorder.unsupported(`${what} a distributed tensor`);
  if (recorder.isBorrowed(t)) recorder.unsupported(`${what} an argument or a tensor from outside`);
  if (recorder.inBackward) recorder.unsupported(`${what} a tensor in backward`);
}
