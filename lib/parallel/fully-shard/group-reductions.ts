/** The reductions of a group's gradients: one for each dtype of its parameters. */
import type { DType, Tensor } from '../../index.js';
import { ByDtype, pick } from './by-dtype.js';
import type { CommContext } from './comm-context.js';
import { GradientReduction, type ReductionPlan } from './gradient-reduction.js';
import type { ShardedParameter } from './sharded-parameter.js';

type Gradients = readonly (Tensor | null)[];

export class GroupReductions {
  private readonly reductions: ByDtype<GradientReduction>;

  /** @param reduceDtype - null for that of the parameters */
  constructor(plan: Omit<ReductionPlan, 'dtype' | 'reduceDtype'>, reduceDtype: DType | null) {
    this.reductions = new ByDtype(plan.parameters, (parameters) => {
      const { dtype } = (parameters[0] as ShardedParameter).parameter;
      return new GradientReduction({
        ...plan,
        parameters,
        dtype,
        reduceDtype: reduceDtype ?? dtype,
      });
    });
  }

  /** Whether a reduction has something to take along that no gradient has come with. */
  hasPending(allReduces: boolean): boolean {
    return this.reductions.values.some((reduction) => reduction.hasPending(allReduces));
  }

  /** For which parameters something waits for a reduction; null if nothing does. */
  pendingState(allReduces: boolean): readonly boolean[] | null {
    if (!this.hasPending(true)) return null;
    return this.reductions.join((reduction, places) =>
      reduction.willReduce(
        places.map(() => false),
        allReduces,
      ),
    );
  }

  /** Adds gradients to those that a later reduction takes along. */
  accumulate(grads: Gradients): void {
    this.reductions.join((reduction, places) => {
      reduction.accumulate(pick(grads, places));
      return [];
    });
  }

  /** Drops all that waits for a later reduction. */
  clear(): void {
    for (const reduction of this.reductions.values) reduction.clear();
  }

  /** Whether {@link run} returns a gradient for each parameter, if these come with one. */
  willReduce(given: readonly boolean[], allReduces: boolean): boolean[] {
    return this.reductions.join((reduction, places) =>
      reduction.willReduce(pick(given, places), allReduces),
    );
  }

  /** See {@link GradientReduction.run}. */
  run(grads: Gradients, comm: CommContext, allReduces: boolean): (Tensor | null)[] {
    return this.reductions.join((reduction, places) =>
      reduction.run(pick(grads, places), comm, allReduces),
    );
  }
}
