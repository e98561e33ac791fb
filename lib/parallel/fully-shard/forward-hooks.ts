/** The hooks that a forward of a sharded module registers on its results and on its inputs. */
import { autograd } from '../../index.js';
import type { FSDPState } from './fsdp-state.js';
import type { BackwardUse, WholeOfForward } from './ops.js';

/**
 * Graphs register the same hooks at every run. Other forwards have their own: backward gives
 * modules the whole parameters of the forward to which it comes, and frees frozen ones behind the
 * last.
 */
export class ForwardHooks implements BackwardUse {
  /** How many forwards with these hooks backward has begun and not passed. */
  begun = 0;
  /** Runs when backward comes to a result. */
  readonly before: () => void;
  /** Runs when backward has passed all inputs. */
  readonly passed: () => void;
  /** What modules hold in backward. */
  readonly whole: WholeOfForward;
  private readonly state: FSDPState;

  constructor(state: FSDPState, whole: WholeOfForward) {
    this.state = state;
    this.whole = whole;
    this.before = autograd.opaqueHook(() => state.preBackward(this), ['preBackward', state], {
      memory: () => state.group.wholeMemory,
      inSteps: () => state.preBackwardInStep(this),
    });
    this.passed = autograd.opaqueHook(() => this.passes(), ['passed', state], {
      inSteps: () => state.group.inStep?.passed(this),
    });
  }

  begins(): void {
    this.state.backwardBegins(this);
  }

  passes(): void {
    this.state.backwardPassed(this);
  }

  settings(): unknown {
    return this.state.backwardSettings();
  }
}
