/** Ranks whose graphs have different collectives get errors that name the graphs and the nodes. */
import assert from 'node:assert/strict';
import { functional } from '../../../lib/distributed.js';
import { compile, ones, type Tensor } from '../../../lib/index.js';
import { onRanks, valuesOf } from '../../distributed/support/on-ranks.js';

type Fn = (x: Tensor) => Tensor;

/** The message of the error that ranks get which compile different functions. */
async function messageOf(
  fn: (rank: number) => Fn,
  backend: 'eager' | 'aot_eager',
): Promise<string> {
  const run = onRanks(2, async (rank) => {
    const compiled = compile(fn(rank), { backend, fullgraph: true });
    await valuesOf(compiled(ones([4])));
  });
  const error = await run.then(
    () => null,
    (failure: Error) => failure,
  );
  assert.ok(error !== null);
  return `${error.message}\n${(error.cause as Error | undefined)?.message}`;
}

describe('ranks whose graphs have different collectives', () => {
  for (const backend of ['eager', 'aot_eager'] as const) {
    it(`get an error that names both graphs and nodes, at the first call, with ${backend}`, async () => {
      const text = await messageOf((rank) => {
        const summed = (x: Tensor): Tensor => functional.allReduce(x, 'sum').mul(2);
        const gathered = (x: Tensor): Tensor => functional.allGatherTensor(x, 0).mul(2);
        return rank === 0 ? summed : gathered;
      }, backend);
      assert.match(text, /%allReduce of the graph of summed, at .*distributed-mismatch\.test\./);
      assert.match(text, /%allGather of the graph of gathered, at .*distributed-mismatch\.test\./);
    });

    it(`get one that names the graph if the other rank has no collective, with ${backend}`, async () => {
      const text = await messageOf((rank) => {
        const summed = (x: Tensor): Tensor => functional.allReduce(x, 'sum').mul(2);
        const doubled = (x: Tensor): Tensor => x.mul(2);
        return rank === 0 ? summed : doubled;
      }, backend);
      assert.match(text, /%allReduce of the graph of summed, at .*distributed-mismatch\.test\./);
    });

    it(`get one that names the node at which they part, with ${backend}`, async () => {
      const text = await messageOf(
        (rank) =>
          function step(x: Tensor): Tensor {
            const once = functional.allReduce(x, 'sum');
            return functional.allReduce(once.mul(2), rank === 0 ? 'sum' : 'avg');
          },
        backend,
      );
      assert.match(text, /\(sum\) at %allReduce_1 of the graph of step, at /);
      assert.match(text, /\(avg\) at %allReduce_1 of the graph of step, at /);
    });
  }
});
