/** Forward and backward of distributed tensors as graphs of local ops and collectives. */
import assert from 'node:assert/strict';
import {
  ColwiseParallel,
  DTensor,
  initDeviceMesh,
  Partial,
  parallelizeModule,
  Replicate,
  RowwiseParallel,
  Shard,
} from '../../../lib/distributed.js';
import { compile, manualSeed, nn, ones, rand, type Tensor } from '../../../lib/index.js';
import { onRanks, valuesOf } from '../../distributed/support/on-ranks.js';
import { recording } from './differential.js';

const collectivesOf = (text: string): string[] =>
  [...text.matchAll(/= (all\w+|reduceScatter\w*)\(/g)].map(([, name]) => name as string);

describe('aotAutograd on distributed tensors', () => {
  it('lowers ops to those of local shards, and wraps the result', async () => {
    await onRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2]);
      const { backend, graphs } = recording();
      const fn = (x: DTensor): DTensor => x.mul(x).add(2) as DTensor;
      const compiled = compile(fn, { backend, fullgraph: true });
      const x = DTensor.fromLocal(ones([2, 2]), mesh, [Shard(0)]);
      for (let i = 0; i < 2; i++) {
        const result = compiled(x);
        assert.ok(result instanceof DTensor);
        assert.deepEqual(await valuesOf(result.toLocal()), await valuesOf(fn(x).toLocal()));
        assert.deepEqual(result.placements.map(String), ['Shard(0)']);
      }
      assert.equal(graphs.length, 1);
      assert.equal(collectivesOf(graphs[0] as string).length, 0);
      assert.equal((graphs[0] as string).split('\n').length, 5);
    });
  });

  it('has the collectives of a parallel block in both graphs', async () => {
    await onRanks(2, async () => {
      manualSeed(1);
      const mesh = initDeviceMesh('cpu', [2]);
      const model = new nn.Sequential(new nn.Linear(4, 8), new nn.ReLU(), new nn.Linear(8, 4));
      parallelizeModule(model, mesh, { '0': ColwiseParallel(), '2': RowwiseParallel() });
      const x = rand([2, 4]).requiresGrad_();
      const run = async (f: (input: Tensor) => Tensor): Promise<unknown> => {
        model.zeroGrad();
        x.grad = null;
        const y = f(x);
        y.mul(y).sum().backward();
        return Promise.all(
          [
            y,
            x.grad as unknown as Tensor,
            ...[...model.parameters()].map((p) => p.grad as Tensor),
          ].map(valuesOf),
        );
      };
      const { backend, graphs } = recording();
      const compiled = compile((input: Tensor) => model(input), { backend, fullgraph: true });
      const expected = await run((input) => model(input));
      for (let i = 0; i < 2; i++) assert.deepEqual(await run(compiled), expected);
      assert.deepEqual(graphs.map(collectivesOf), [['allReduce'], ['allReduce']]);
    });
  });

  it('takes gradients of other placements and layouts than it expects', async () => {
    await onRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2]);
      const make = (): DTensor =>
        DTensor.fromLocal(rand([4, 4]), mesh, [Replicate()]).requiresGrad_() as DTensor;
      const fn = (x: DTensor): DTensor => x.sin() as DTensor;
      const grad = DTensor.fromLocal(rand([2, 4]), mesh, [Shard(0)]);
      const compiled = compile(fn, { backend: 'aot_eager', fullgraph: true });
      const values: number[][] = [];
      for (const run of [fn, compiled, compiled]) {
        manualSeed(4);
        const x = make();
        run(x).backward(grad);
        values.push(await valuesOf(x.grad as Tensor));
      }
      assert.deepEqual(values[1], values[0]);
      assert.deepEqual(values[2], values[0]);
    });
  });

  it('returns partial results as they are', async () => {
    await onRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2]);
      const x = DTensor.fromLocal(ones([2, 2]), mesh, [Shard(0)]).requiresGrad_() as DTensor;
      const compiled = compile((t: DTensor) => t.sum(), { backend: 'aot_eager', fullgraph: true });
      for (let i = 0; i < 2; i++) {
        const y = compiled(x) as DTensor;
        assert.deepEqual(y.placements.map(String), [String(Partial())]);
        x.grad = null;
        y.backward();
        assert.deepEqual(await valuesOf(x.grad as unknown as Tensor), [1, 1, 1, 1, 1, 1, 1, 1]);
      }
    });
  });
});
