/** The early gathers that a wrapper asks for. */
import { autograd, isGradEnabled, tree } from '../../index.js';
import type { FSDPState } from '../fully-shard/fsdp-state.js';
import type { Settings } from './fsdp-options.js';

/** The wrapper below each root that ran last in this step. */
const lastRun = new WeakMap<object, FSDPState>();

export class Prefetch {
  private readonly state: FSDPState;
  /** Gathers for the wrapper before this one, once backward has passed; null without it. */
  private readonly afterBackward: (() => void) | null;

  constructor(state: FSDPState, { forwardPrefetch, backwardPrefetch }: Settings) {
    this.state = state;
    this.afterBackward =
      backwardPrefetch === 'BACKWARD_POST'
        ? autograd.opaqueHook(() => this.gatherBefore(), ['prefetch', state])
        : null;
    state.prefetchesBefore = backwardPrefetch === 'BACKWARD_PRE';
    if (forwardPrefetch) state.afterGather = () => this.learnOrder();
  }

  /** Whether the wrapper is the outermost one. Known from its first forward on. */
  get isRoot(): boolean {
    return this.state.initialize().state === this.state;
  }

  /** The wrapper that ran before this one gathers for it in the next step. */
  private learnOrder(): void {
    const root = this.state.initialize();
    const before = lastRun.get(root);
    if (before !== undefined && root.state !== this.state) before.forwardPrefetch = [this.state];
    lastRun.set(root, this.state);
  }

  /** Forward begins. */
  onForward(args: readonly unknown[]): void {
    const { afterBackward } = this;
    if (afterBackward === null || !isGradEnabled()) return;
    const inputs = tree.tensorsWithin(args).filter((t) => t.requiresGrad);
    if (inputs.length > 0) autograd.registerMultiGradHook(inputs, afterBackward, { mode: 'all' });
  }

  private gatherBefore(): void {
    this.state.initialize().comm.order.before(this.state.group)?.unshard();
  }
}
