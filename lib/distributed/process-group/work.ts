/** The handle of an asynchronous collective. */
import { currentRuntime, type RankRuntime } from '../../core/rank-runtime.js';
import type { Tensor } from '../../core/tensor.js';
import { seenHere } from '../../core/user-stack.js';

/**
 * The handle that a collective with `asyncOp: true` returns. Reading a result needs no wait,
 * because the device orders reads behind the collective. Wait to know that the other ranks have
 * come this far.
 *
 * @see PyTorch `torch.distributed.Work`
 */
export class Work {
  private readonly done: Promise<void>;
  private completed = false;
  private failure: Error | null = null;
  private isAsked = false;
  private readonly outputs: readonly Tensor[];
  private readonly runtime: RankRuntime = currentRuntime();
  private readonly isReady = this.runtime.turns?.mark();

  /** @internal */
  constructor(done: Promise<void>, outputs: readonly Tensor[]) {
    const number = this.runtime.unobserved.begin();
    this.outputs = outputs;
    this.done = done;
    done.then(
      () => {
        this.completed = true;
      },
      (error: Error) => {
        this.completed = true;
        this.failure = error;
        if (this.isAsked) this.runtime.unobserved.observe(error);
        else this.runtime.unobserved.add(this, number, error);
      },
    );
  }

  /** Resolves when the collective is done on this rank. @throws CollectiveError if it failed */
  async wait(): Promise<void> {
    this.observe();
    const { turns } = currentRuntime();
    try {
      await (turns === null ? this.done : turns.wait('Work.wait', this.done, this.isReady));
    } catch (error) {
      throw seenHere(error);
    }
  }

  /** Whether the event loop has seen it complete or fail. */
  isCompleted(): boolean {
    return this.completed;
  }

  /** Whether it is done and has not failed. */
  isSuccess(): boolean {
    if (this.completed) this.observe();
    return this.completed && this.failure === null;
  }

  /** The error if it failed, else null. */
  exception(): Error | null {
    if (this.completed) this.observe();
    return this.failure;
  }

  /** The tensors that it writes. */
  result(): readonly Tensor[] {
    return this.outputs;
  }

  /** `Work(in flight)`, `Work(done)` or `Work(failed: …)` */
  toString(): string {
    if (!this.completed) return 'Work(in flight)';
    return this.failure === null ? 'Work(done)' : `Work(failed: ${this.failure.message})`;
  }

  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return this.toString();
  }

  /** Marks the failure as observed: it is not reported again at the end of the program. */
  private observe(): void {
    this.isAsked = true;
    if (this.failure !== null) this.runtime.unobserved.observe(this.failure);
  }
}
