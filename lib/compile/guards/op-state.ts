/** What decides the ops of a call's gradient beside its operands: guards compare it by value. */
import type { AnyOp } from '../../core/op.js';
import { shown } from '../../core/options.js';
import { sameStructure } from '../autograd-capture/structure.js';
import type { Difference } from './facts.js';

export class OpState {
  private readonly op: AnyOp;
  private readonly params: object;
  private readonly expected: unknown;

  /** As it is when the op is recorded. */
  constructor(op: AnyOp, params: object) {
    this.op = op;
    this.params = params;
    this.expected = this.now();
  }

  private now(): unknown {
    return this.op.gradientState?.(this.params);
  }

  /** Whether there is a state to compare. */
  get isEmpty(): boolean {
    return this.expected === undefined || this.expected === null;
  }

  matches(): boolean {
    return sameStructure(this.expected, this.now());
  }

  difference(): Difference | null {
    const now = this.now();
    if (sameStructure(this.expected, now)) return null;
    return { path: `the state of ${this.op.name}`, before: shown(this.expected), now: shown(now) };
  }

  sentences(): string[] {
    return [`the state of ${this.op.name} is ${shown(this.expected)}`];
  }
}
