/** Whole train steps of sharded models as one graph: `captureStep` beside the uncompiled step. */
import assert from 'node:assert/strict';
import { captureStep } from '../../../lib/compile/index.js';
import { DTensor, getRank } from '../../../lib/distributed.js';
import { CompileError, InPlaceError, noGrad, type Tensor } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';
import { failing } from '../compiled-model.js';
import { assertAlike, batch, capturing, STEPS, training } from './captured-training.js';
import { type Sharded, VARIANTS, type Variant } from './compiled-variants.js';

const TRIED = [
  'default options',
  'reshardAfterForward: false',
  'reshardAfterForward: 2 of 4 ranks',
  'mixed precision',
  'replicas',
  'blocks that run twice',
  'explicit prefetch',
  'a frozen group',
  'two layers as one group',
  'parameters of two dtypes',
  'two frozen layers as one group',
  'a block that is gathered before forward',
  'setReshardAfterBackward(false)',
];

describe('a captured step of a sharded model', () => {
  for (const name of TRIED) {
    const variant = VARIANTS[name] as Variant;
    it(
      `trains as the uncompiled step, with ${name}`,
      withRanks(variant.ranks ?? 2, async () => {
        const [eager, other] = [training(variant), training(variant)];
        const by = capturing(eager);
        await assertAlike(eager, other, (each, i) => {
          variant.before?.(each.model, i, 0);
          return by(each, each.step);
        });
      }),
    );
  }

  it(
    'sees shards that the program has changed between steps',
    withRanks(2, async () => {
      const [eager, other] = [training(), training()];
      const by = capturing(eager);
      await assertAlike(eager, other, (each) => {
        noGrad(() => {
          for (const p of each.model.parameters()) p.mul_(1.5);
        });
        return by(each, each.step);
      });
    }),
  );

  it(
    'counts its changes of a parameter, so that a backward pass before it notices them',
    withRanks(2, () => {
      const [eager, other] = [training(), training()];
      const by = capturing(eager);
      for (let i = 0; i < STEPS; i++) {
        const seen = [eager, other].map((each) => {
          const [weight] = [...each.model.parameters()] as [Tensor];
          const early = weight.square().sum();
          by(each, each.step)(batch(i));
          assert.throws(
            () => early.backward(),
            (error: Error) => error instanceof InPlaceError && /version/.test(error.message),
          );
          return [...each.model.parameters()].map((p) => p._version);
        });
        assert.deepEqual(seen[1], seen[0], `after step ${i}`);
      }
    }),
  );

  it(
    'waits until the program has freed parameters that it made whole',
    withRanks(2, async () => {
      const [eager, other] = [training(), training()];
      const by = capturing(eager);
      await assertAlike(eager, other, (each, i) => {
        const step = by(each, each.step);
        if (i === 0) return step;
        each.model.unshard();
        if (each === other)
          assert.throws(() => step(batch(i)), /first\.weight was a Parameter and is another/);
        each.model.reshard();
        return step;
      });
    }),
  );

  it(
    'accumulates if it was captured so, beside one that reduces what has accumulated',
    withRanks(2, async () => {
      const [eager, other] = [training(), training()];
      const by = capturing(eager);
      await assertAlike(
        eager,
        other,
        (each, i) => {
          const isLast = i % 2 === 1;
          each.model.setRequiresGradientSync(isLast);
          return by(each, isLast ? each.step : each.accumulate);
        },
        { steps: 2 * STEPS },
      );
    }),
  );

  it(
    'does not serve other reductions than those of its capture, and says which setting changed',
    withRanks(2, () => {
      const { model, step } = training();
      const captured = captureStep(step, [batch(0)]);
      captured.run(batch(0));
      model.setRequiresGradientSync(false);
      assert.equal(captured.matches(batch(1)), false);
      assert.throws(
        () => captured.run(batch(1)),
        (error: Error) =>
          error instanceof CompileError &&
          /reducesGradients was true and is false\. Capture the step again/.test(error.message),
      );
      model.setRequiresGradientSync(true);
      captured.run(batch(1));
    }),
  );

  it(
    'refuses to change settings inside, and leaves the model as it was',
    withRanks(2, async () => {
      const [eager, other] = [training(), training()];
      for (const [name, change] of Object.entries(CHANGES))
        assert.throws(
          () =>
            captureStep(
              (x: Tensor) => {
                other.model(x).sum().backward();
                change(other.model);
                return other.step(x);
              },
              [batch(0)],
            ),
          (error: Error) =>
            error instanceof CompileError &&
            error.message.includes(`${name}() of a sharded module`),
        );
      await assertAlike(eager, other, (each) => each.step, { steps: 1 });
    }),
  );

  for (const phase of ['forward', 'backward'] as const)
    it(
      `takes whole steps after one that threw in ${phase}`,
      withRanks(2, async () => {
        const [eager, other] = [training(), training()];
        const by = capturing(eager);
        await assertAlike(eager, other, (each, i) => {
          const step = by(each, each.step);
          if (i !== 1) return step;
          failing.set(getRank(), phase);
          try {
            assert.throws(() => step(batch(9)), new RegExp(`failed in ${phase}`));
          } finally {
            failing.delete(getRank());
          }
          each.model.zeroGrad();
          for (const p of each.model.parameters()) assert.ok(p instanceof DTensor);
          return step;
        });
      }),
    );
});

/** Settings of the methods that a sharded model has. */
const CHANGES: Readonly<Record<string, (model: Sharded) => void>> = {
  setRequiresGradientSync: (model) => model.setRequiresGradientSync(false),
  setRequiresAllReduce: (model) => model.setRequiresAllReduce(false),
  setReshardAfterForward: (model) => model.setReshardAfterForward(false),
  setReshardAfterBackward: (model) => model.setReshardAfterBackward(false),
  setIsLastBackward: (model) => model.setIsLastBackward(false),
  setUnshardInBackward: (model) => model.setUnshardInBackward(false),
  setModulesToForwardPrefetch: (model) => model.setModulesToForwardPrefetch([]),
  unshard: (model) => void model.unshard(),
  reshard: (model) => model.reshard(),
};
