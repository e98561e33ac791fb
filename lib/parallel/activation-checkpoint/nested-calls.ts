/**
 * Checkpoints that the function of a checkpoint calls. Their functions close over tensors that the
 * outer one has made and freed; where it makes them again, it has new functions, too.
 */
import { type OpenScope, scope, type Tensor } from '../../index.js';

/** What a checkpoint runs. */
export type CheckpointedFunction = (...args: readonly unknown[]) => unknown;

/** A checkpoint that another one calls. */
interface NestedCall<Outer> {
  readonly fn: CheckpointedFunction;
  /** The function of the same call in the recomputation of the outer checkpoint. */
  fnAgain: CheckpointedFunction | null;
  readonly enclosing: Outer | null;
}

/** Sees the checkpoints that the innermost running function calls; returns whose backward it is. */
let onCall: ((nested: NestedCall<unknown>) => unknown) | null = null;

function whileSeeing<T>(see: typeof onCall, fn: () => T): T {
  const before = onCall;
  onCall = see;
  try {
    return fn();
  } finally {
    onCall = before;
  }
}

export class NestedCalls<Outer> {
  private readonly calls: NestedCall<Outer>[] = [];
  private unfinished = 0;
  private calledAgain = 0;
  /** What the recomputation made before the last of the calls, and its stand-ins for arguments. */
  private made: OpenScope | null = null;
  private standIns: readonly Tensor[] = [];
  private inScope: <T>(fn: () => T) => T = scope;

  /** Enters a call. Returns the checkpoint in whose forward pass it is; null in a recomputation. */
  static enter<Outer>(nested: NestedCall<Outer>): Outer | null {
    return (onCall?.(nested) ?? null) as Outer | null;
  }

  /** Runs the forward pass of `outer`. */
  forward<T>(outer: Outer, onNested: () => void, fn: () => T): T {
    return whileSeeing((nested) => {
      this.calls.push(nested as NestedCall<Outer>);
      this.unfinished++;
      onNested();
      return outer;
    }, fn);
  }

  /**
   * Runs the function again in a scope. What it makes up to the last of the calls stays until
   * {@link drop}, which gives what is needed then to such a scope, too.
   */
  again<T>(inScope: <R>(fn: () => R) => R, fn: () => T, onNested: () => void): T {
    this.drop([]);
    this.inScope = inScope;
    return inScope(() => {
      const made = this.calls.length === 0 ? null : scope();
      this.made = made;
      try {
        return whileSeeing((nested) => {
          const call = this.calls[this.calledAgain++];
          if (call !== undefined) call.fnAgain = nested.fn;
          if (this.areAllCalledAgain) made?.leave();
          onNested();
          return null;
        }, fn);
      } finally {
        made?.leave();
      }
    });
  }

  get areAllCalledAgain(): boolean {
    return this.calledAgain >= this.calls.length;
  }

  /** Keeps tensors that stand for arguments as long as a call may need them. */
  keep(standIns: readonly Tensor[]): void {
    this.standIns = standIns;
    if (this.unfinished === 0) this.drop([]);
  }

  /** Backward needs one of the calls no more. */
  endOne(needed: () => readonly Tensor[]): void {
    this.unfinished--;
    if (this.unfinished === 0) this.drop(needed());
  }

  /** Frees what the calls may close over, but for tensors that are needed. */
  drop(needed: readonly Tensor[]): void {
    const { calls, made, standIns } = this;
    for (const call of calls) call.fnAgain = null;
    for (const t of standIns) t.dispose();
    this.standIns = [];
    this.calledAgain = 0;
    this.made = null;
    if (made !== null)
      this.inScope(() => {
        made.join();
        return needed;
      });
  }
}
