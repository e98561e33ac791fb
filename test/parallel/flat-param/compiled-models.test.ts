/**
 * Models with flat parameters that `compile` compiles as a whole: losses, gradients, parameters and
 * collectives of the uncompiled model, to the bit, from one graph.
 */
import assert from 'node:assert/strict';
import {
  ColwiseParallel,
  FullyShardedDataParallel,
  initDeviceMesh,
  parallelizeModule,
  RowwiseParallel,
} from '../../../lib/distributed.js';
import { compile, manualSeed, nn, noGrad, randn, type Tensor } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';
import { takesAll } from '../../takes-all.js';
import { assertTrainsAsUncompiled, BACKENDS, PASSES } from '../compiled-training.js';
import { skippingHooks } from '../fully-shard/skipping-hooks.js';
import { type Flat, flat, VARIANTS } from './compiled-variants.js';

/** What the other backends share with 'inductor' is tried with some variants. */
const FEW = /^FULL|^NO_SHARD|^useOrigParams$|^mixed precision$|without a reduction$|clipped/;

for (const backend of BACKENDS)
  for (const backward of PASSES)
    describe(`models with flat parameters that are compiled (${backend}, backward by ${backward})`, () => {
      for (const [name, variant] of Object.entries(VARIANTS))
        if (takesAll || backend === 'inductor' || FEW.test(name))
          it(
            `train as uncompiled ones, with ${name}`,
            withRanks(variant.ranks ?? 2, () =>
              assertTrainsAsUncompiled(flat, variant, { backend, backward }),
            ),
          );
    });

describe('models with flat parameters that are compiled', () => {
  it(
    'run their hooks around the graph with tensor parallelism',
    withRanks(4, async () => {
      const mesh = initDeviceMesh('cpu', [2, 2], { meshDimNames: ['dp', 'tp'] });
      const made = (): nn.Module => {
        manualSeed(1);
        const layers = new nn.Sequential(new nn.Linear(4, 6), new nn.ReLU(), new nn.Linear(6, 3));
        const plan = { '0': ColwiseParallel(), '2': RowwiseParallel() };
        const parallel = parallelizeModule(layers, mesh.get('tp'), plan);
        return new FullyShardedDataParallel(parallel, { deviceMesh: mesh.get('dp') });
      };
      const steps = async (run: nn.Module, model: nn.Module): Promise<unknown[]> => {
        const seen: unknown[] = [];
        for (let i = 0; i < 3; i++) {
          manualSeed(10 * i + mesh.get('dp').getLocalRank());
          const loss = run(randn([5, 4]))
            .square()
            .mean();
          loss.backward();
          seen.push([...(await loss.detach().read())]);
          noGrad(() => {
            for (const p of model.parameters()) p.sub_((p.grad as Tensor).mul(0.1));
          });
          model.zeroGrad();
        }
        return seen;
      };
      const [eager, other] = [made(), made()];
      const compiled = compile(other, {
        backend: 'aot_eager',
        fullgraph: true,
      }) as unknown as nn.Module;
      assert.deepEqual(await steps(compiled, other), await steps(eager, eager));
    }),
  );

  it(
    'run their hooks uncompiled with skipFsdpHooks, with equal results',
    withRanks(2, async () => {
      const [eager, other] = [0, 1].map(() => {
        manualSeed(1);
        return flat.make({});
      }) as [Flat, Flat];
      const run = compile(other, { backend: 'aot_eager' });
      for (const [i, skips] of [false, true, true, false].entries()) {
        const seen = ([eager, run] as const).map((call) => {
          manualSeed(10 + i);
          const loss = skippingHooks(skips, () =>
            (call as Flat)(randn([5, 4]))
              .square()
              .mean(),
          );
          loss.backward();
          return loss.detach();
        }) as [Tensor, Tensor];
        assert.deepEqual(await seen[1].read(), await seen[0].read(), `step ${i}`);
        const grads = [other, eager].map((model) => flat.valuesOf(model, (p) => p.grad));
        assert.deepEqual(await grads[0], await grads[1], `step ${i}`);
      }
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
              await assertTrainsAsUncompiled(flat, variant, { backend: 'inductor', backward });
      },
      { mode: 'process', timeoutMs: 240_000 },
    ),
  );
});
