/** Plans of several ranks: collectives run between segments, in order with them. */
import assert from 'node:assert/strict';
import { aotAutograd } from '../../../lib/compile/aot/aot-autograd.js';
import { buildPlan, type PlanSummary } from '../../../lib/compile/schedule/plan.js';
import {
  ColwiseParallel,
  initDeviceMesh,
  parallelizeModule,
  RowwiseParallel,
} from '../../../lib/distributed.js';
import { compile, nn, ones, type Tensor } from '../../../lib/index.js';
import { onRanks, valuesOf } from '../../distributed/support/on-ranks.js';

describe('plans on several ranks', () => {
  it('compute the results and gradients of a parallel module', async () => {
    const summaries = await onRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2]);
      const model = new nn.Sequential(new nn.Linear(4, 8), new nn.ReLU(), new nn.Linear(8, 4));
      parallelizeModule(model, mesh, { '0': ColwiseParallel(), '2': RowwiseParallel() });
      const gradients = async (): Promise<unknown> =>
        Promise.all([...model.parameters()].map((p) => valuesOf(p.grad as Tensor)));
      const x = ones([2, 4]);
      const wanted = await valuesOf(model(x));
      model(x).sum().backward();
      const wantedGradients = await gradients();
      const found: PlanSummary[] = [];
      const backend = aotAutograd({
        fwCompiler: (module) => {
          const plan = buildPlan(module.graph);
          found.push(plan.summary);
          return (...inputs) => plan.run(inputs);
        },
      });
      const compiled = compile((input: Tensor) => model(input), { fullgraph: true, backend });
      for (let turn = 0; turn < 3; turn++) {
        model.zeroGrad();
        const result = compiled(x);
        assert.deepEqual(await valuesOf(result), wanted);
        result.sum().backward();
        assert.deepEqual(await gradients(), wantedGradients);
      }
      return found.map(({ segments, single }) => [segments > 0, single > 0]);
    });
    assert.deepEqual(summaries[0], [
      [true, true],
      [true, false],
    ]);
  });
});
