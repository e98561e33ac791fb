/** Products of sequences that are sharded along their tokens, or along their batch. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  CommDebugMode,
  type DeviceMesh,
  distributeTensor,
  initDeviceMesh,
  type Placement,
  Replicate,
  Shard,
} from '../../lib/distributed.js';
import { manualSeed, nn, randn, type Tensor } from '../../lib/index.js';
import { reusedRanks } from '../distributed/support/reused-ranks.js';

const { linear } = nn.functional;
const [R, S0, S1] = [Replicate(), Shard(0), Shard(1)];

const products: Record<string, (x: Tensor, w: Tensor, bias: Tensor) => Tensor> = {
  linear: (x, w) => linear(x, w),
  'linear with a bias': (x, w, bias) => linear(x, w, bias),
  matmul: (x, w) => x.matmul(w.t()),
};

async function assertClose(given: Tensor, expected: Tensor): Promise<void> {
  await given.read();
  assert.ok(given.allclose(expected, { rtol: 1e-4, atol: 1e-5 }), `${given}\nexpected ${expected}`);
}

describe('a product of a sharded sequence and a replicated weight', () => {
  const ranks = reusedRanks(4);

  /** The product and its gradients as on one device, and what it communicated. */
  async function check(
    mesh: DeviceMesh,
    placements: readonly Placement[],
    [b, s, k, n]: readonly [number, number, number, number],
    run: (typeof products)[string],
  ): Promise<void> {
    manualSeed(3);
    const parts = [randn([b, s, k]), randn([n, k]), randn([n])] as const;
    const direction = randn([b, s, n]);
    const single = parts.map((t) => t.clone().requiresGrad_()) as [Tensor, Tensor, Tensor];
    const expected = run(...single);
    expected.backward(direction);
    const replicated = placements.map(() => R);
    const distributed = parts.map((t, i) =>
      distributeTensor(t, mesh, i === 0 ? placements : replicated).requiresGrad_(),
    ) as [Tensor, Tensor, Tensor];
    const g = distributeTensor(direction, mesh, placements);
    const comm = new CommDebugMode();
    const y = comm.run(() => run(...distributed));
    assert.deepEqual(comm.getCommCounts(), {});
    assert.deepEqual(y.placements?.map(String), placements.map(String));
    // Replicated weights need the sum of the ranks' gradients, and nothing else is sent.
    const backward = new CommDebugMode();
    backward.run(() => y.backward(g));
    assert.deepEqual(Object.keys(backward.getCommCounts()), ['allReduce']);
    assert.deepEqual(distributed[0].grad?.placements?.map(String), placements.map(String));
    await assertClose(y.fullTensor(), expected);
    for (const [i, t] of distributed.entries()) {
      const { grad } = single[i] as Tensor;
      if (grad !== null) await assertClose((t.grad as Tensor).fullTensor(), grad);
    }
    const frozen = new CommDebugMode();
    const [x, w, bias] = distributed;
    frozen.run(() => run(x, w.detach(), bias.detach()).backward(g));
    assert.deepEqual(frozen.getCommCounts(), {});
  }

  for (const [name, run] of Object.entries(products)) {
    it(`communicates nothing in ${name}, forward and backward, on a mesh of one dimension`, async () => {
      await ranks.run(async () => {
        const mesh = initDeviceMesh('cpu', [4]);
        for (const placement of [S0, S1]) {
          await check(mesh, [placement], [4, 8, 6, 5], run);
          await check(mesh, [placement], [5, 7, 3, 2], run);
          await check(mesh, [placement], [3, 2, 4, 1], run);
        }
      });
    });

    it(`communicates nothing in ${name}, forward and backward, on a mesh of two dimensions`, async () => {
      await ranks.run(async () => {
        const mesh = initDeviceMesh('cpu', [2, 2]);
        for (const placements of [
          [S0, S1],
          [S1, S0],
          [R, S1],
          [S1, S1],
        ]) {
          await check(mesh, placements, [4, 8, 6, 5], run);
          await check(mesh, placements, [3, 5, 4, 2], run);
        }
      });
    });
  }

  it('communicates nothing for sequences and shards of any size', async () => {
    const size = fc.integer({ min: 1, max: 6 });
    const cases = fc.sample(
      fc.tuple(
        fc.tuple(size, size, size, size),
        fc.constantFrom(S0, S1),
        fc.constantFrom(...Object.keys(products)),
      ),
      { numRuns: 25, seed: 7 },
    );
    await ranks.run(async () => {
      const mesh = initDeviceMesh('cpu', [4]);
      for (const [sizes, placement, name] of cases)
        await check(mesh, [placement], sizes, products[name] as (typeof products)[string]);
    });
  });
});
