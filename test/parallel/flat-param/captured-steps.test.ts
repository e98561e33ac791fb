/** Whole train steps of models with flat parameters as one graph, beside the uncompiled step. */
import assert from 'node:assert/strict';
import { type CapturedStep, captureStep } from '../../../lib/compile/index.js';
import { CommDebugMode, type FSDPOptions, getRank } from '../../../lib/distributed.js';
import { CompileError, manualSeed, optim, randn, type Tensor } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';
import { flat, VARIANTS } from './compiled-variants.js';

const batch = (i: number): Tensor => {
  manualSeed(10 * i + getRank());
  return randn([5, 4]);
};

function training(options: FSDPOptions) {
  manualSeed(1);
  const model = flat.make({ options: () => options });
  const optimizer = new optim.AdamW(model.parameters(), { lr: 0.05, capturable: true });
  const step = (x: Tensor): Tensor => {
    const loss = model(x).square().mean();
    loss.backward();
    optimizer.step();
    optimizer.zeroGrad();
    return loss.detach();
  };
  return { model, step };
}

/** Losses, parameters and collectives of four steps. */
async function seenOf(options: FSDPOptions, isCaptured: boolean): Promise<unknown[]> {
  const { model, step } = training(options);
  let captured: CapturedStep<[x: Tensor], Tensor> | null = null;
  const seen: unknown[] = [];
  for (let i = 0; i < 4; i++) {
    const x = batch(i);
    if (isCaptured) captured ??= captureStep(step, [x]);
    const mode = new CommDebugMode();
    manualSeed(100 * i + getRank());
    const loss = mode.run(() => (captured === null ? step(x) : captured.run(x)));
    seen.push([...(await loss.read())], await flat.valuesOf(model, (p) => p));
    seen.push(mode.events.map((e) => `${e.kind} ${e.bytes}`));
  }
  return seen;
}

describe('a captured step of a model with flat parameters', () => {
  for (const name of ['FULL_SHARD', 'SHARD_GRAD_OP', 'NO_SHARD', 'mixed precision'])
    it(
      `trains as the uncompiled step, with ${name}`,
      withRanks(2, async () => {
        const options = VARIANTS[name]?.options?.() ?? {};
        assert.deepEqual(await seenOf(options, true), await seenOf(options, false));
      }),
    );

  it(
    'is refused with useOrigParams, which divides gradients in a hook',
    withRanks(2, () => {
      const { step } = training({ useOrigParams: true });
      assert.throws(
        () => captureStep(step, [batch(0)]),
        (error: Error) =>
          error instanceof CompileError &&
          /useOrigParams.*compile the model by compile\(\)/s.test(error.message),
      );
    }),
  );
});
