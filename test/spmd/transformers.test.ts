/** Transformers as people write them, compiled and planned: with recomputation and without it. */
import assert from 'node:assert/strict';
import { initDeviceMesh } from '../../lib/distributed.js';
import { manualSeed, nn, optim, randint, type Tensor } from '../../lib/index.js';
import * as spmd from '../../lib/spmd/index.js';
import { onRanks, valuesOf } from '../distributed/support/on-ranks.js';
import {
  CONTEXT,
  RECOMPUTATIONS,
  type Recomputation,
  recomputing,
  type Tokens,
  TRANSFORMERS,
  VOCABULARY,
} from './support/transformers.js';

const ROWS = 8;
const STEPS = 2;
/** So many that activations are most of the memory. */
const PLANNED_ROWS = 1024;

const trainStep = (
  model: Tokens,
  optimizer: optim.SGD,
  tokens: Tensor,
  targets: Tensor,
): Tensor => {
  const logits = model(tokens);
  const loss = nn.functional.crossEntropy(logits.flatten(0, 1), targets.flatten());
  loss.backward();
  optimizer.step();
  optimizer.zeroGrad();
  return loss;
};

const tokensOf = (rows: number): Tensor => randint(0, VOCABULARY, [rows, CONTEXT]);

/** The parameters after some steps. `partOf`: the rows of a rank. */
async function trained(
  make: () => Tokens,
  step: typeof trainStep,
  partOf: (rows: Tensor) => Tensor = (rows) => rows,
): Promise<number[]> {
  manualSeed(0);
  const model = make();
  const optimizer = new optim.SGD(model.parameters(), { lr: 0.3, capturable: true });
  for (let i = 0; i < STEPS; i++) {
    manualSeed(10 + i);
    const [tokens, targets] = [tokensOf(ROWS), tokensOf(ROWS)];
    step(model, optimizer, partOf(tokens), partOf(targets));
  }
  const all = await Promise.all([...model.parameters()].map((p) => valuesOf(p.detach())));
  return all.flat().map(Number);
}

function assertClose(seen: readonly number[], expected: readonly number[]): void {
  assert.equal(seen.length, expected.length);
  seen.forEach((value, i) => assert.ok(Math.abs(value - expected[i]!) < 1e-4, `${i}: ${value}`));
}

describe('spmd.compile of transformers', () => {
  for (const [name, make] of Object.entries(TRANSFORMERS))
    for (const recomputation of RECOMPUTATIONS)
      it(`trains ${name} as one rank does, recomputing ${recomputation}`, async () => {
        const made = (): Tokens => recomputing(make(), recomputation);
        const expected = await trained(make, trainStep);
        for (const shape of [[1], [2], [4], [2, 2]])
          await onRanks(
            shape.reduce((a, b) => a * b),
            async (rank) => {
              const mesh = initDeviceMesh('cpu', shape);
              const rows = ROWS / mesh.size();
              const step = spmd.compile({ parallelMode: { mesh } })(trainStep);
              const part = (t: Tensor): Tensor => t.narrow(0, rank * rows, rows).clone();
              assertClose(await trained(made, step, part), expected);
            },
          );
      });

  for (const name of ['a GPT', "the library's TransformerEncoder"])
    it(`trains ${name} with dropout in a checkpoint by the numbers of one without`, async () => {
      const by = (recomputation: Recomputation) => (): Tokens =>
        recomputing(TRANSFORMERS[name]!(0.4), recomputation);
      await onRanks(2, async () => {
        const seen = RECOMPUTATIONS.map((each) => trained(by(each), spmd.compile()(trainStep)));
        const [none, ...others] = await Promise.all(seen);
        for (const other of others) assertClose(other, none!);
      });
    });
});

describe('plan of transformers', () => {
  const mesh = { shape: [2, 2], meshDimNames: ['dp', 'tp'] };
  const planned = (make: () => Tokens): spmd.StepPlan =>
    spmd.plan(({ dataRanks }) => {
      const model = make();
      const optimizer = new optim.SGD(model.parameters(), { capturable: true });
      const rows = PLANNED_ROWS / dataRanks;
      return { trainStep, args: [model, optimizer, tokensOf(rows), tokensOf(rows)] };
    }, mesh);

  for (const [name, make] of Object.entries(TRANSFORMERS))
    it(`answers for ${name} in all layouts, and counts what recomputation saves`, () => {
      const plans = RECOMPUTATIONS.map((each) => planned(() => recomputing(make(), each)));
      for (const found of plans)
        assert.deepEqual(
          found.layouts.map(({ layout, problem }) => [layout, problem]),
          [
            ['dp', null],
            ['fsdp', null],
            ['tp', null],
            ['fsdp x tp', null],
          ],
        );
      const [none, blocks] = plans as [spmd.StepPlan, spmd.StepPlan];
      none.layouts.forEach((each, i) => {
        const recomputed = blocks.layouts[i]!;
        assert.ok(recomputed.memory.activations < each.memory.activations, each.layout);
        assert.ok(recomputed.timeline!.compute > each.timeline!.compute, each.layout);
      });
    });
});
