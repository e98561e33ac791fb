/**
 * Models in DistributedDataParallel that `compile` compiles as a whole: losses, gradients,
 * parameters, buffers and collectives of the uncompiled model, to the bit, from one graph.
 */
import { withRanks } from '../../../lib/testing/index.js';
import { assertTrainsAsUncompiled, BACKENDS, PASSES } from '../compiled-training.js';
import { replicated, VARIANTS } from './compiled-variants.js';

/** What the backends that run op by op share with the others is tried with some variants. */
const FEW = /default|^several|^buffers$|without a reduction$|unused in some|^a static graph$/;
const hasAll = (backend: string): boolean => backend === 'aot_eager' || backend === 'inductor';

for (const backend of BACKENDS)
  for (const backward of PASSES)
    describe(`models in DistributedDataParallel that are compiled (${backend}, backward by ${backward})`, () => {
      for (const [name, variant] of Object.entries(VARIANTS))
        if (hasAll(backend) || FEW.test(name))
          it(
            `train as uncompiled ones, with ${name}`,
            withRanks(variant.ranks ?? 2, () =>
              assertTrainsAsUncompiled(replicated, variant, { backend, backward }),
            ),
          );
    });

describe('models in DistributedDataParallel that are compiled', () => {
  it(
    'train as uncompiled ones on ranks that are processes',
    withRanks(
      2,
      async () => {
        for (const [name, variant] of Object.entries(VARIANTS))
          if ((variant.ranks ?? 2) === 2 && FEW.test(name))
            for (const backward of PASSES)
              await assertTrainsAsUncompiled(replicated, variant, {
                backend: 'inductor',
                backward,
              });
      },
      { mode: 'process', timeoutMs: 240_000 },
    ),
  );
});
