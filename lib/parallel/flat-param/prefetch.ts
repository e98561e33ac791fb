/** The early gathers that a wrapper asks for. */
import { autograd, isGradEnabled, tree } from '../../index.js';
import type { FSDPState } from '../fully-shard/fsdp-state.js';
import type { Settings } from './fsdp-options.js';

/** The wrapper below each root that ran last in this step. */
const lastRun = new WeakMap<object, FSDPState>();

export class Prefetch {
  private readonly state: FSDPState;
  private readonly isForward: boolean;
  private readonly isPost: boolean;

  constructor(state: FSDPState, { forwardPrefetch, backwardPrefetch }: Settings) {
    this.state = state;
    this.isForward = forwardPrefetch;
    this.isPost = backwardPrefetch === 'BACKWARD_POST';
    state.prefetchesBefore = backwardPrefetch === 'BACKWARD_PRE';
  }

  /** Whether the wrapper is the outermost one. Known from its first forward on. */
  get isRoot(): boolean {
    return this.state.initialize().state === this.state;
  }

  /** The parameters are whole, and forward begins. */
  onForward(args: readonly unknown[]): void {
    if (this.isForward) this.learnOrder();
    if (this.isPost) this.prefetchAfterBackward(args);
  }

  /** The wrapper that ran before this one gathers for it in the next step. */
  private learnOrder(): void {
    const root = this.state.initialize();
    const before = lastRun.get(root);
    if (before !== undefined && root.state !== this.state) before.forwardPrefetch = [this.state];
    lastRun.set(root, this.state);
  }

  private prefetchAfterBackward(args: readonly unknown[]): void {
    const inputs = tree.tensors(args).filter((t) => t.requiresGrad);
    if (!isGradEnabled() || inputs.length === 0) return;
    const { comm } = this.state.initialize();
    const prefetch = autograd.opaqueHook(
      () => comm.order.before(this.state.group)?.unshard(),
      ['prefetch', this.state],
    );
    autograd.registerMultiGradHook(inputs, prefetch, { mode: 'all' });
  }
}
