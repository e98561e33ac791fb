/**
 * Models in DistributedDataParallel that `compile` compiles as a whole: losses, gradients,
 * parameters, buffers and collectives of the uncompiled model, to the bit, from one graph.
 */
import assert from 'node:assert/strict';
import { captureStep } from '../../../lib/compile/index.js';
import { CompileError, manualSeed, ones, type Tensor } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';
import { takesAll } from '../../takes-all.js';
import { assertTrainsAsUncompiled, BACKENDS, PASSES } from '../compiled-training.js';
import { type Replicated, replicated, VARIANTS } from './compiled-variants.js';

/** What the other backends share with 'inductor' is tried with some variants. */
const FEW = /default|^several|^buffers$|without a reduction$|unused in some|^a static graph$/;

for (const backend of BACKENDS)
  for (const backward of PASSES)
    describe(`models in DistributedDataParallel that are compiled (${backend}, backward by ${backward})`, () => {
      for (const [name, variant] of Object.entries(VARIANTS))
        if (takesAll || backend === 'inductor' || FEW.test(name))
          it(
            `train as uncompiled ones, with ${name}`,
            withRanks(variant.ranks ?? 2, () =>
              assertTrainsAsUncompiled(replicated, variant, { backend, backward }),
            ),
          );
    });

describe('models in DistributedDataParallel that are compiled', () => {
  it(
    'are no part of captureStep, which says what to do and leaves them as they were',
    withRanks(2, async () => {
      const [ddp, other] = [replicated.make({}), replicated.make({})];
      const step = (model: Replicated): Tensor => {
        manualSeed(3);
        const loss = model(ones([2, 4])).sum();
        loss.backward();
        return loss.detach();
      };
      assert.throws(
        () => captureStep(() => step(ddp), []),
        (error: Error) =>
          error instanceof CompileError &&
          /hook.*DistributedDataParallel.*compile the model by compile\(\)/s.test(error.message),
      );
      other.loadStateDict(ddp.stateDict());
      assert.deepEqual(await step(ddp).read(), await step(other).read());
      const grads = [ddp, other].map((model) => replicated.valuesOf(model, (p) => p.grad));
      assert.deepEqual(await grads[0], await grads[1]);
    }),
  );

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
