/**
 * Models with flat parameters that `compile` compiles as a whole: losses, gradients, parameters and
 * collectives of the uncompiled model, to the bit, from one graph.
 */
import { withRanks } from '../../../lib/testing/index.js';
import { assertTrainsAsUncompiled, BACKENDS, PASSES } from '../compiled-training.js';
import { flat, VARIANTS } from './compiled-variants.js';

/** What the other backends share with 'inductor' is tried with some variants. */
const FEW = /^FULL|^NO_SHARD|^useOrigParams$|^mixed precision$|without a reduction$|clipped/;

for (const backend of BACKENDS)
  for (const backward of PASSES)
    describe(`models with flat parameters that are compiled (${backend}, backward by ${backward})`, () => {
      for (const [name, variant] of Object.entries(VARIANTS))
        if (backend === 'inductor' || FEW.test(name))
          it(
            `train as uncompiled ones, with ${name}`,
            withRanks(variant.ranks ?? 2, () =>
              assertTrainsAsUncompiled(flat, variant, { backend, backward }),
            ),
          );
    });

describe('models with flat parameters that are compiled', () => {
  it(
    'train as uncompiled ones on ranks that are processes',
    withRanks(
      2,
      async () => {
        for (const [name, variant] of Object.entries(VARIANTS))
          if ((variant.ranks ?? 2) === 2 && FEW.test(name))
            for (const backward of PASSES)
              await assertTrainsAsUncompiled(flat, variant, { backend: 'inductor', backward });
      },
      { mode: 'process', timeoutMs: 240_000 },
    ),
  );
});
