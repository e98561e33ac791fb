/**
 * Models that fullyShard shards and `compile` compiles as a whole: losses, gradients, parameters and
 * collectives of the uncompiled model, to the bit, from one graph.
 */
import assert from 'node:assert/strict';
import { randn } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';
import { takesAll } from '../../takes-all.js';
import { BACKENDS, PASSES } from '../compiled-training.js';
import {
  assertAsUncompiled,
  DIFFERENCES,
  errorOf,
  modelOf,
  type Size,
  wholeMemory,
} from './compiled-training.js';
import { VARIANTS } from './compiled-variants.js';

/** What the backends that run op by op share with the others is tried with some variants. */
const FEW =
  /default|mixed|replicas|wrappers|twice|sizes|without a reduction$|^a frozen|in the middle/;

for (const backend of BACKENDS)
  for (const backward of PASSES)
    describe(`models that are fullySharded and compiled (${backend}, backward by ${backward})`, () => {
      const compiled = { backend, backward };

      for (const [name, variant] of Object.entries(VARIANTS))
        if (takesAll || backend === 'inductor' || FEW.test(name))
          it(
            `train as uncompiled ones, with ${name}`,
            withRanks(variant.ranks ?? 2, () => assertAsUncompiled(variant, compiled)),
          );

      it(
        'have gathers in the graph of forward, and free whole parameters as uncompiled ones',
        withRanks(2, () => {
          const made = modelOf({}, compiled);
          const { blocks, root } = wholeMemory(made);
          const sum = (all: Size[]): number => all.reduce((bytes, each) => bytes + each.size(), 0);
          for (let step = 0; step < 3; step++) {
            const loss = made.run(randn([5, 4])).sum();
            assert.equal(sum(blocks), 0, `after forward ${step}`);
            assert.ok(sum(root) > 0, 'the root keeps its parameters for backward');
            made.around(() => loss.backward());
            assert.equal(sum([...blocks, ...root]), 0, `after step ${step}`);
          }
          const ops = made.graphs.forward.flatMap((graph) =>
            graph.callNodes.map((n) => n.op?.name),
          );
          assert.equal(ops.filter((op) => /unshard|gather/i.test(op ?? '')).length >= 4, true);
        }),
      );

      for (const [what, [change, pattern]] of Object.entries(DIFFERENCES))
        it(`get the error of uncompiled ones where one rank ${what}`, async () => {
          for (const how of [null, compiled])
            assert.match((await errorOf(change, how)).message, pattern, String(how?.backend));
        });
    });

describe('models that are fullySharded and compiled', () => {
  it(
    'train as uncompiled ones on ranks that are processes',
    withRanks(
      2,
      async () => {
        for (const [name, variant] of Object.entries(VARIANTS))
          if ((variant.ranks ?? 2) === 2 && FEW.test(name))
            for (const backward of PASSES)
              await assertAsUncompiled(variant, { backend: 'inductor', backward });
      },
      { mode: 'process', timeoutMs: 240_000 },
    ),
  );
});
