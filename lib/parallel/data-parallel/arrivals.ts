/**
 * What happens when backward has put a gradient into `.grad` of a parameter: reducers take it, and
 * its post-accumulate hooks run when it is reduced. So an optimizer that steps in them does the
 * same on all ranks.
 */
import { autograd, type Tensor } from '../../index.js';
import type { ReducedParameter } from './buckets.js';

/** What reduces the gradients of a module. */
interface Reducing {
  /** Whether the running backward pass will reduce a gradient of each parameter. */
  readonly isReducing: boolean;
  arrived(each: ReducedParameter): void;
}

const arrivals = new WeakMap<Tensor, Arrivals>();

/** The arrivals of gradients of a parameter. */
export function arrivalsOf(parameter: Tensor): Arrivals {
  const known = arrivals.get(parameter);
  if (known !== undefined) return known;
  const made = new Arrivals(parameter);
  arrivals.set(parameter, made);
  return made;
}

class Arrivals {
  private readonly parameter: Tensor;
  /** One, unless the module was wrapped several times. */
  private readonly reducers = new Map<Reducing, ReducedParameter>();

  constructor(parameter: Tensor) {
    this.parameter = parameter;
    const hook = autograd.opaqueHook(() => this.arrived(), ['arrived', this]);
    autograd.delayPostAccumulateGradHooks(parameter, hook);
  }

  add(reducer: Reducing, each: ReducedParameter): void {
    this.reducers.set(reducer, each);
  }

  private arrived(): void {
    for (const [reducer, each] of this.reducers) reducer.arrived(each);
    this.runHooks();
  }

  /** Runs the hooks of the program, unless the gradient will be reduced in this pass. */
  runHooks(): void {
    for (const { isReducing } of this.reducers.keys()) if (isReducing) return;
    autograd.runPostAccumulateGradHooks(this.parameter);
  }
}
