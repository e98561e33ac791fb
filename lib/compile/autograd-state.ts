/**
 * The autograd fields of a tensor, saved and restored: a capture runs autograd on real tensors that
 * the function closes over, and must leave them unchanged.
 */
import type { GradFn, Tensor, VersionCounter } from '../core/tensor.js';

export class AutogradState {
  private readonly tensor: Tensor;
  private readonly node: GradFn | null;
  private readonly outputNr: number;
  private readonly leafRequiresGrad: boolean;
  private readonly base: Tensor | null;
  private readonly nodeVersion: number;
  private readonly inPlaceForbidden: string | null;
  private readonly counter: VersionCounter | null;
  private readonly version: number;

  constructor(t: Tensor) {
    this.tensor = t;
    this.node = t.gradFn; // refreshed, if t is a view of a base that has changed
    this.outputNr = t.outputNr;
    this.leafRequiresGrad = t.leafRequiresGrad;
    this.base = t.base;
    this.nodeVersion = t.nodeVersion;
    this.inPlaceForbidden = t.inPlaceForbidden;
    this.counter = t.versionCounter;
    this.version = t.currentVersion;
  }

  restore(): void {
    const t = this.tensor;
    t.node = this.node;
    t.outputNr = this.outputNr;
    t.leafRequiresGrad = this.leafRequiresGrad;
    t.base = this.base;
    t.nodeVersion = this.nodeVersion;
    t.inPlaceForbidden = this.inPlaceForbidden;
    t.versionCounter = this.counter;
    if (this.counter !== null) this.counter.value = this.version;
  }
}
