/** Buckets of collectives in steps that communicate in forward, too. */
import assert from 'node:assert/strict';
import { captureStep } from '../../lib/compile/index.js';
import { DTensor, functional, initDeviceMesh, Replicate } from '../../lib/distributed.js';
import { manualSeed, ones, randn, type Tensor } from '../../lib/index.js';
import { commFusionWithConcat, compile, GraphModuleTransformation } from '../../lib/spmd/index.js';
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

  it('are in no bucket that waits for another one, which waits for it', async () => {
    await onRanks(2, async (rank) => {
      const mesh = initDeviceMesh('cpu', [2]);
      const reduced = (t: Tensor, op: 'sum' | 'max'): Tensor => functional.allReduce(t, op, mesh);
      const step = (x: Tensor, y: Tensor): Tensor => {
        const first = reduced(reduced(x, 'sum').sin(), 'max');
        const second = reduced(reduced(y, 'max').cos(), 'sum');
        return first.add(second);
      };
      const args: [Tensor, Tensor] = [ones([3]).mul(rank), ones([3]).add(rank)];
      const captured = captureStep(step, args);
      commFusionWithConcat(captured.module, 25);
      assert.deepEqual(
        [...(await captured.run(...args).read())],
        [...(await step(...args).read())],
      );
    });
  });
});
