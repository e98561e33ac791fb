/** Collectives of lowered graphs, and the nodes that wait for their results. */
import assert from 'node:assert/strict';
import {
  aotAutograd,
  defaultPartition,
  type GraphModule,
  minCutRematerializationPartition,
  type Partition,
} from '../../../lib/compile/index.js';
import {
  AsyncCollectiveTensor,
  DTensor,
  functional,
  initDeviceMesh,
  Replicate,
  Shard,
  waitTensor,
} from '../../../lib/distributed.js';
import { compile, type Tensor, tensor } from '../../../lib/index.js';
import { onRanks, valuesOf } from '../../distributed/support/on-ranks.js';

const partitions = { defaultPartition, minCutRematerializationPartition };

/** A backend that keeps the names of the calls of each graph, and what forward saves. */
function recording(partition: (typeof partitions)[keyof typeof partitions] = defaultPartition): {
  backend: ReturnType<typeof aotAutograd>;
  calls: string[][];
  saved: string[];
} {
  const calls: string[][] = [];
  const saved: string[] = [];
  const keep = (module: GraphModule) => {
    calls.push(module.graph.nodes.flatMap((n) => (n.op === null ? [] : [n.op.name])));
    return module.forward.bind(module);
  };
  const backend = aotAutograd({
    fwCompiler: keep,
    partitionFn: (joint): Partition => {
      const made = partition(joint);
      saved.push(...made.saved.map(({ node }) => node.op?.name ?? node.kind));
      return made;
    },
  });
  return { backend, calls, saved };
}

const isAsync = (t: Tensor): boolean => t instanceof AsyncCollectiveTensor;
const collectives = ['allReduce', 'allGather', 'reduceScatter', 'allToAll', 'broadcast'];

describe('waits in lowered graphs', () => {
  for (const [name, partition] of Object.entries(partitions)) {
    it(`stand first for an argument that is the result of a collective, with ${name}`, async () => {
      await onRanks(2, async (rank) => {
        const mesh = initDeviceMesh('cpu', [2]);
        const { backend, calls, saved } = recording(partition);
        const fn = (x: Tensor): Tensor => x.sin().sin();
        const compiled = compile(fn, { backend, fullgraph: true });
        const run = async (f: typeof fn): Promise<number[][]> => {
          const local = tensor([rank + 1, 2, 3]).requiresGrad_();
          const input = DTensor.fromLocal(local, mesh, [Shard(0)])
            .redistribute([Replicate()], { asyncOp: true })
            .toLocal();
          assert.ok(isAsync(input));
          const result = f(input);
          assert.equal(isAsync(result), false);
          result.sum().backward();
          return Promise.all([result, local.grad as unknown as Tensor].map(valuesOf));
        };
        const expected = await run(fn);
        for (let i = 0; i < 2; i++) assert.deepEqual(await run(compiled), expected);
        assert.deepEqual(calls[0], ['waitTensor', 'sin', 'sin']);
        assert.equal(calls.length, 2);
        assert.ok(
          !(calls[1] as string[]).some((op) => [...collectives, 'waitTensor'].includes(op)),
        );
        assert.ok(saved.includes('waitTensor'));
        assert.ok(!saved.includes('placeholder'));
      });
    });

    it(`stand before the first use of a result, and are not repeated, with ${name}`, async () => {
      await onRanks(2, async (rank) => {
        const { backend, calls } = recording(partition);
        const fn = (x: Tensor): Tensor => {
          const y = functional.allReduce(x.mul(2), 'sum');
          return y.exp().add(x.cos()).mul(y);
        };
        const compiled = compile(fn, { backend, fullgraph: true });
        const run = async (f: typeof fn): Promise<number[][]> => {
          const x = tensor([0.25 * rank, 0.5]).requiresGrad_();
          const y = f(x);
          y.sum().backward();
          return Promise.all([y, x.grad as unknown as Tensor].map(valuesOf));
        };
        const expected = await run(fn);
        for (let i = 0; i < 2; i++) assert.deepEqual(await run(compiled), expected);
        const [forward, backward] = calls as [string[], string[]];
        assert.equal(forward.filter((op) => op === 'allReduce').length, 1);
        assert.deepEqual(forward.slice(1, 4), ['allReduce', 'waitTensor', 'exp']);
        // The gradient of the all-reduce is another one, with a wait of its own.
        assert.equal(backward.filter((op) => op === 'allReduce').length, 1);
        assert.equal(backward.filter((op) => op === 'waitTensor').length, 1);
        assert.ok(backward.indexOf('allReduce') < backward.indexOf('waitTensor'));
      });
    });
  }

  for (const backend of ['eager', 'aot_eager', 'aot_eager_decomp_partition'] as const)
    it(`leaves results to the caller to wait for, with ${backend}`, async () => {
      await onRanks(2, async (rank) => {
        const fn = (x: Tensor): Tensor[] => [
          functional.allReduce(x, 'sum'),
          waitTensor(functional.allGatherTensor(x, 0)),
          functional.allReduce(x.mul(2), 'sum').mul(2),
        ];
        const compiled = compile(fn, { backend, fullgraph: true });
        for (const f of [fn, compiled, compiled]) {
          const results = f(tensor([rank, 1]));
          assert.deepEqual(results.map(isAsync), [true, false, false]);
          assert.deepEqual(await Promise.all(results.map(valuesOf)), [
            [1, 2],
            [0, 1, 1, 1],
            [4, 8],
          ]);
        }
      });
    });

  for (const backend of ['eager', 'aot_eager'] as const)
    it(`ends the mark of an argument that the function waits for, with ${backend}`, async () => {
      await onRanks(2, async () => {
        const fn = (x: Tensor): Tensor => waitTensor(x).mul(isAsync(x) ? 2 : 3);
        const branch = (x: Tensor): Tensor => x.mul(isAsync(x) ? 2 : 3);
        const compiled = compile(fn, { backend, fullgraph: true });
        const compiledBranch = compile(branch, { backend, fullgraph: true });
        for (let i = 0; i < 3; i++) {
          const x = functional.allReduce(tensor([1]), 'sum');
          assert.deepEqual(await valuesOf(compiledBranch(x)), [4]);
          assert.ok(isAsync(x));
          assert.deepEqual(await valuesOf(compiled(x)), [6]);
          assert.equal(isAsync(x), false);
          assert.deepEqual(await valuesOf(compiledBranch(x)), [6]);
        }
      });
    });

  it('keep collectives whose results nothing uses, on all ranks', async () => {
    await onRanks(2, async () => {
      const { backend, calls } = recording();
      const compiled = compile(
        (x: Tensor) => {
          functional.allReduce(x, 'sum').mul(2);
          return x.add(1);
        },
        { backend, fullgraph: true },
      );
      for (let i = 0; i < 2; i++) assert.deepEqual(await valuesOf(compiled(tensor([1]))), [2]);
      assert.ok((calls[0] as string[]).includes('allReduce'));
    });
  });
});
