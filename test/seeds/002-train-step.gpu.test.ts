/** Seed 002 on a GPU, with the widths of test_transformation.py: two ranks of one process. */
import { float64 } from '../../lib/index.js';
import {
  commFusionWithConcat,
  GraphModuleTransformation,
  IterGraphModule,
  iterMoveGradsAndOptimizers,
  removeCopyFromOptimizer,
  type StepModule,
  scheduleCommWait,
} from '../../lib/spmd/index.js';
import { onRanks } from '../distributed/support/on-ranks.js';
import { skipWithoutCuda } from '../skip.js';
import { assertTrainsAsDdp } from './002-train-step.js';

/** Whether the middle bucket has a parameter: it has those of the third layer and the fourth. */
const isMoved = (name: string): boolean => /^[46]\./.test(name);

const WIDE = { dim: 4096, batchSize: 100, device: 'cuda', dtype: float64 } as const;
/** Twice the cap of test_transformation.py, since float64 is: buckets of 1, 2 and 2 layers. */
const CAP_MB = 200;

describe('compiled train steps on a GPU', function () {
  this.timeout(300_000);
  before(function () {
    skipWithoutCuda(this);
  });

  for (const [number, fused] of [
    ['002.4', false],
    ['002.5', true],
  ] as const)
    it(`seed ${number}: trains as DDP does, with fused collectives`, async () => {
      await onRanks(2, async (rank) => {
        const gmTransformation = GraphModuleTransformation({
          enableGraphOptimization: true,
          enableInductor: fused,
          bucketSizeMb: CAP_MB,
        });
        await assertTrainsAsDdp(rank, { gmTransformation }, { ...WIDE, layers: 2, fused });
      });
    });

  it('seed 002.7: moves the bucket of two layers into the next iteration', async () => {
    await onRanks(2, async (rank) => {
      const gmTransformation = (module: StepModule): IterGraphModule => {
        const gm = new IterGraphModule(module);
        commFusionWithConcat(gm, CAP_MB);
        scheduleCommWait(gm);
        removeCopyFromOptimizer(gm);
        iterMoveGradsAndOptimizers(gm, 'allReduceFused_1', 'relu');
        gm.finalizeSetup();
        return gm;
      };
      await assertTrainsAsDdp(
        rank,
        { gmTransformation },
        { ...WIDE, layers: 5, fused: true, lags: isMoved },
      );
    });
  });
});
