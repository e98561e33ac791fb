/** Buckets of collectives in steps that communicate in forward, too. */
import assert from 'node:assert/strict';
import { DTensor, initDeviceMesh, Replicate } from '../../lib/distributed.js';
import { manualSeed, randn, type Tensor } from '../../lib/index.js';
import { compile, GraphModuleTransformation } from '../../lib/spmd/index.js';
import { onRanks } from '../distributed/support/on-ranks.js';
import { adamOf, modelOf, shardInTurns, trainStep } from './support/fake-step.js';

describe('fused collectives', () => {
  it('leave a tensor parallel step as it is, whose collectives follow from each other', async () => {
    await onRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2], { meshDimNames: ['ranks'] });
      const trained = async (enableGraphOptimization: boolean): Promise<number[][]> => {
        manualSeed(0);
        const model = modelOf(6, 16);
        shardInTurns(model, 2);
        const optimizer = adamOf(model);
        const gmTransformation = GraphModuleTransformation({ enableGraphOptimization });
        const parallelMode = { mesh, batch: () => [Replicate()] };
        const step = compile({ gmTransformation, parallelMode })(trainStep);
        for (let i = 0; i < 3; i++) step(model, optimizer, randn([8, 16]));
        const values: number[][] = [];
        for (const p of model.parameters()) {
          const local: Tensor = p instanceof DTensor ? p.toLocal() : p;
          values.push(Array.from(await local.detach().read(), Number));
        }
        return values;
      };
      assert.deepEqual(await trained(true), await trained(false));
    });
  });
});
