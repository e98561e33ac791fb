/** The graphs of a step before passes and after each of them. */
import type { Graph } from '../../../lib/compile/index.js';
import {
  commFusionWithConcat,
  IterGraphModule,
  iterMoveGradsAndOptimizers,
  removeCopyFromOptimizer,
  scheduleCommWait,
} from '../../../lib/spmd/index.js';
import { type FakeStep, takeFakeStep } from './fake-step.js';

/** What is found of a step before passes, after each of two, and with a bucket that was moved. */
export async function timelinesOf<T>(
  step: FakeStep,
  of: (graph: Graph) => T,
  moved: string,
  bucketSizeMb = 100,
): Promise<T[]> {
  const found: T[] = [];
  await takeFakeStep(step, (module) => {
    const gm = new IterGraphModule(module);
    found.push(of(gm.graph));
    commFusionWithConcat(gm, bucketSizeMb);
    found.push(of(gm.graph));
    scheduleCommWait(gm);
    found.push(of(gm.graph));
    removeCopyFromOptimizer(gm);
    iterMoveGradsAndOptimizers(gm, moved, 'relu');
    gm.finalizeSetup();
    found.push(of(gm.main));
    return gm;
  });
  return found;
}
