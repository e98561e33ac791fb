/**
 * Groups in the capture of a whole step. The hooks of modules run there and record ops; what a group
 * counts and frees happens where these run. So a capture has a state of its own, which says which
 * ops come next and what modules hold meanwhile, and the group stays as it is.
 */
import { compiler, type Tensor } from '../../index.js';
import { placeSharded, placeWhole } from './in-modules.js';
import {
  type BackwardUse,
  beginBackward,
  finishUnshard,
  passBackward,
  startUnshard,
} from './ops.js';
import type { FSDPParamGroup } from './param-group.js';

/** A value of each capture of a whole step. */
export class OfStep<T extends object> {
  private readonly values = new WeakMap<object, T>();
  private readonly make: () => T;

  constructor(make: () => T) {
    this.make = make;
  }

  /** That of the running capture; null outside of one. */
  get now(): T | null {
    const step = compiler.capturedStep();
    if (step === null) return null;
    const value = this.values.get(step) ?? this.make();
    this.values.set(step, value);
    return value;
  }
}

export class GroupInStep {
  /** Whether backward has come to the module, and not to its end. */
  inBackward = false;
  /** Whether modules hold the whole parameters for backward. */
  holdsWhole = false;
  private readonly group: FSDPParamGroup;
  /** The whole parameters of the last forward. */
  private whole: readonly Tensor[] = [];
  /** Whether they are in memory. */
  private isWhole = false;
  /** What stands for a gather that has no end yet. */
  private started: Tensor | null = null;
  /** Forwards of a frozen group that backward has begun and not passed. */
  private begun = 0;

  constructor(group: FSDPParamGroup) {
    this.group = group;
  }

  forwardBegan(whole: readonly Tensor[]): void {
    this.whole = whole;
    this.isWhole = true;
    this.started = null;
  }

  forwardEnded(keepsAll: boolean): void {
    this.isWhole = keepsAll;
  }

  /** An activation checkpoint in the module runs its forward again. */
  useWholeOfForward(): void {
    placeWhole(this.group.parameters, this.whole);
  }

  /** Backward has come to a result of the module. */
  preBackward(use: BackwardUse): void {
    const { group } = this;
    this.startGather();
    beginBackward(group.wholeMemory, use);
    this.inBackward = true;
    if (!group.isTrainable) this.begun++;
    if (!group.unshardsInBackward) return;
    this.finishGather();
    this.holdsWhole = true;
    this.useWholeOfForward();
  }

  /** Starts to gather the parameters for backward, unless that needs none. */
  startGather(): void {
    const { group, isWhole, started } = this;
    if (isWhole || started !== null || !group.unshardsInBackward) return;
    const shards = group.parameters.map(({ parameter }) => parameter);
    this.started = startUnshard(shards, group.wholeMemory, group, 'backward');
  }

  private finishGather(): void {
    const { group, started } = this;
    if (started === null) return;
    finishUnshard(started, group.wholeMemory, group, false);
    this.started = null;
    this.isWhole = true;
  }

  /** Backward has passed the inputs of a forward of a frozen group. */
  passed(use: BackwardUse): void {
    if (this.begun === 0) return;
    passBackward(this.group.wholeMemory, use);
    this.begun--;
    if (this.begun === 0) this.afterBackward();
  }

  /** Backward is done with the parameters. */
  afterBackward(): void {
    const { parameters, reshardsAfterBackward } = this.group;
    placeSharded(parameters);
    this.holdsWhole = false;
    if (reshardsAfterBackward) this.isWhole = false;
  }

  /** The pass has ended, and freed what it left. */
  endBackward(): void {
    this.started = null;
    this.begun = 0;
    if (this.holdsWhole) this.afterBackward();
    this.inBackward = false;
  }
}
