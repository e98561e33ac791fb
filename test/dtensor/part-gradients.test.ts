/**
 * Gradients of parts of a distributed tensor: they are as sharded as those of the parts, and no
 * rank communicates for them.
 */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  CommDebugMode,
  DeviceMesh,
  DTensor,
  distributeTensor,
  initDeviceMesh,
  Partial,
  type Placement,
  Replicate,
  Shard,
} from '../../lib/distributed.js';
import {
  autograd,
  float64,
  manualSeed,
  nn,
  ones,
  randn,
  scaledDotProductAttention,
  type Tensor,
} from '../../lib/index.js';
import { reusedRanks } from '../distributed/support/reused-ranks.js';
import { Rng } from '../fuzz/rng.js';
import { assertWhole, drawSpec, placed } from './random-placements.js';

const WORLD = 4;
const [R, S0, S1, S2, P] = [Replicate(), Shard(0), Shard(1), Shard(2), Partial()];

type Parts = (x: Tensor) => readonly Tensor[];

interface Seen {
  readonly counts: Readonly<Record<string, number>>;
  /** The gradient of the whole, before it gets the placements of the whole. */
  readonly arrived: Tensor;
}

/** The backward pass through parts of a distributed tensor; `grads` are those of the parts. */
function passBack(x: Tensor, parts: Parts, grads: (part: Tensor, i: number) => Tensor): Seen {
  const whole = x.mul(1);
  let arrived: Tensor | null = null;
  whole.registerHook((g) => {
    arrived = g.clone();
  });
  const list = parts(whole);
  const roots = list.map(grads);
  const mode = new CommDebugMode();
  mode.run(() => autograd.backward([...list], roots));
  return { counts: mode.getCommCounts(), arrived: arrived as unknown as Tensor };
}

const weightOf = (like: Tensor, i: number): Tensor =>
  ones([like.numel()], { dtype: float64 })
    .cumsum(0)
    .mul(1.7 + i)
    .sin()
    .reshape([...like.shape]);

/** In a shape whose dims four ranks share unevenly. */
const SHAPE = [6, 5, 6];
/** Parts of dim 0, so that the others may be sharded. */
const uses: Readonly<Record<string, Parts>> = {
  unbind: (x) => x.unbind(0),
  chunk: (x) => x.chunk(3, 0),
  split: (x) => x.split([1, 3, 2], 0),
  select: (x) => [x.select(0, 2)],
  'two of unbind': (x) => x.unbind(0).slice(1, 3),
  narrow: (x) => [x.narrow(0, 1, 3)],
  'overlapping narrow': (x) => [x.narrow(0, 0, 4), x.narrow(0, 2, 4)],
  'slice with steps': (x) => [x.slice(0, 0, null, 2), x.slice(0, 1, null, 2)],
  'the whole, and a part': (x) => [x, x.narrow(0, 0, 2)],
  unfold: (x) => [x.unfold(0, 3, 2)],
  'unbind of a permuted view': (x) => x.permute([1, 0, 2]).unbind(1),
};

describe('gradients of parts of a distributed tensor', () => {
  const ranks = reusedRanks(WORLD);

  /** Compares with one device; returns what this rank has seen. */
  async function compare(
    mesh: DeviceMesh,
    placements: readonly Placement[],
    parts: Parts,
    shape: readonly number[] = SHAPE,
  ): Promise<Seen> {
    manualSeed(5);
    const plain = randn([...shape], { dtype: float64 });
    const alone = plain.clone().requiresGrad_();
    passBack(alone, parts, weightOf);
    const x = distributeTensor(plain, mesh, placements).requiresGrad_();
    const seen = passBack(x, parts, (part, i) =>
      distributeTensor(weightOf(part, i), mesh, part.placements),
    );
    await assertWhole(x.grad as Tensor, alone.grad as Tensor, `${placements}`);
    return seen;
  }

  for (const [name, parts] of Object.entries(uses))
    it(`stay sharded and need no collective through ${name}`, async () => {
      await ranks.run(async () => {
        for (const [shape, placements] of [
          [[4], [S1]],
          [[4], [S2]],
          [
            [2, 2],
            [S1, S2],
          ],
          [
            [2, 2],
            [S1, S1],
          ],
          [
            [2, 2],
            [R, S2],
          ],
        ] as const) {
          const { counts, arrived } = await compare(
            initDeviceMesh('cpu', shape),
            placements,
            parts,
          );
          assert.deepEqual(counts, {}, `${placements}`);
          assert.deepEqual(arrived.placements, placements);
        }
      });
    });

  it('stay sharded and need no collective through a diagonal', async () => {
    await ranks.run(async () => {
      const mesh = initDeviceMesh('cpu', [4]);
      const { counts, arrived } = await compare(mesh, [S1], (x) => [x.diagonal(1, 0, 2)]);
      assert.deepEqual([counts, arrived.placements], [{}, [S1]]);
    });
  });

  it('are right where the dim of the parts is sharded', async () => {
    await ranks.run(async () => {
      for (const parts of Object.values(uses)) {
        await compare(initDeviceMesh('cpu', [4]), [S0], parts);
        await compare(initDeviceMesh('cpu', [2, 2]), [S0, S2], parts);
      }
    });
  });

  it('are reduced once if partial parts make up the whole', async () => {
    await ranks.run(async () => {
      const mesh = initDeviceMesh('cpu', [4]);
      const x = distributeTensor(ones([4, 6]), mesh, [R]).requiresGrad_();
      const grads = (part: Tensor): Tensor => DTensor.fromLocal(ones([...part.shape]), mesh, [P]);
      const { counts, arrived } = passBack(x, (t) => t.chunk(3, 1), grads);
      assert.deepEqual([counts, arrived.placements], [{ allReduce: 1 }, [P]]);
      await assertWhole(x.grad as Tensor, ones([4, 6]).mul(4), 'whole');
      x.grad = null;
      const some = passBack(x, (t) => t.chunk(3, 1).slice(1), grads);
      assert.deepEqual([some.counts, some.arrived.placements], [{ allReduce: 2 }, [R]]);
    });
  });

  it('are right for partial maxima beside zeros', async () => {
    await ranks.run(async (rank) => {
      const mesh = initDeviceMesh('cpu', [4]);
      const x = distributeTensor(ones([4]), mesh, [R]).requiresGrad_();
      const terms = (part: Tensor): Tensor =>
        DTensor.fromLocal(ones([...part.shape]).mul(-1 - rank), mesh, [Partial('max')]);
      passBack(x, (t) => [t.narrow(0, 0, 2), t.narrow(0, 1, 2)], terms);
      assert.deepEqual([...(await (x.grad as Tensor).read())], [-1, -2, -1, 0]);
    });
  });

  it('of an attention block in data parallel are not gathered', async () => {
    const [T, H, D] = [3, 2, 4];
    const block = (x: Tensor, qkv: nn.Linear): Tensor => {
      const packed = qkv.forward(x).view([x.shape[0] as number, T, 3, H, D]);
      const [q, k, v] = packed.permute([2, 0, 3, 1, 4]).unbind(0) as [Tensor, Tensor, Tensor];
      return scaledDotProductAttention(q, k, v, { isCausal: true }).square().sum();
    };
    await ranks.run(async () => {
      for (const batch of [4, 6]) {
        manualSeed(3);
        const mesh = initDeviceMesh('cpu', [4]);
        const input = randn([batch, T, H * D], { dtype: float64 });
        const alone = new nn.Linear(H * D, 3 * H * D, { dtype: float64 });
        const shared = new nn.Linear(H * D, 3 * H * D, { dtype: float64 });
        shared.weight = new nn.Parameter(distributeTensor(alone.weight.detach(), mesh, [R]));
        shared.bias = new nn.Parameter(
          distributeTensor((alone.bias as Tensor).detach(), mesh, [R]),
        );
        const one = input.clone().requiresGrad_();
        block(one, alone).backward();
        const x = distributeTensor(input, mesh, [S0]).requiresGrad_();
        const loss = block(x, shared);
        const mode = new CommDebugMode();
        mode.run(() => loss.backward());
        assert.deepEqual(mode.getCommCounts(), { allReduce: 2 }, `batch ${batch}`);
        await assertWhole(x.grad as Tensor, one.grad as Tensor, 'input');
        await assertWhole(shared.weight.grad as Tensor, alone.weight.grad as Tensor, 'weight');
      }
    });
  });

  it('are in memory as the whole was', async () => {
    await ranks.run(() => {
      const mesh = initDeviceMesh('cpu', [4]);
      const x = distributeTensor(ones([6, 2, 3, 4]), mesh, [S0]).requiresGrad_();
      const whole = x.permute([2, 0, 3, 1]);
      const seen: unknown[] = [];
      whole.registerHook((g) => {
        seen.push(g.strides, g.toLocal().strides);
      });
      const [a, b, c] = whole.unbind(0) as [Tensor, Tensor, Tensor];
      a.mul(b).add(c).sum().backward();
      assert.deepEqual(seen, [whole.strides, whole.toLocal().strides]);
    });
  });

  it('are nothing on a rank outside of the mesh', async () => {
    await ranks.run(async () => {
      const mesh = new DeviceMesh('cpu', [0, 2]);
      const x = distributeTensor(ones([6, 4]), mesh, [S0]).requiresGrad_();
      passBack(
        x,
        (t) => [...t.chunk(2, 1), t.select(1, 1)],
        (part) => distributeTensor(ones([...part.shape]), mesh, part.placements),
      );
      assert.deepEqual((x.grad as Tensor).shape, [6, 4]);
      if (mesh.getCoordinate() !== null)
        assert.equal((await (x.grad as Tensor).read()).join(), Array(6).fill('1,2,1,1').join());
    });
  });

  it('are right for any parts in any placements', async () => {
    const part = fc.record({
      dim: fc.nat(2),
      start: fc.nat(3),
      length: fc.nat(5),
      isSelect: fc.boolean(),
    });
    const cases = fc.record({
      mesh: fc.constantFrom([4], [2, 2], [2, 1, 2]),
      parts: fc.array(part, { minLength: 1, maxLength: 4 }),
      seed: fc.nat(),
    });
    await fc.assert(
      fc.asyncProperty(cases, async ({ mesh: shape, parts: list, seed }) => {
        await ranks.run(async () => {
          const rng = new Rng(seed);
          manualSeed(seed);
          const mesh = initDeviceMesh('cpu', shape);
          const parts: Parts = (t) =>
            list.map(({ dim, start, length, isSelect }) =>
              isSelect ? t.select(dim, start) : t.slice(dim, start, start + length),
            );
          const plain = randn([5, 6, 5], { dtype: float64 });
          const alone = plain.clone().requiresGrad_();
          passBack(alone, parts, weightOf);
          const x = placed(plain, drawSpec(rng, mesh, plain), true);
          passBack(x, parts, (each, i) => {
            const weight = weightOf(each, i);
            return placed(weight, drawSpec(rng, mesh, weight));
          });
          await assertWhole(x.grad as Tensor, alone.grad as Tensor, 'whole');
        });
      }),
      { numRuns: 10 },
    );
  });

  it('can be differentiated again without a gather', async () => {
    await ranks.run(async () => {
      const mesh = initDeviceMesh('cpu', [4]);
      manualSeed(8);
      const plain = randn(SHAPE, { dtype: float64 });
      for (const name of ['unbind', 'split', 'two of unbind', 'overlapping narrow']) {
        const parts = uses[name] as Parts;
        const second = (x: Tensor): Tensor => {
          const cubes = parts(x).map((each) => each.pow(3).sum());
          const [first] = autograd.grad([cubes.reduce((a, b) => a.add(b))], [x], {
            createGraph: true,
          }) as [Tensor];
          first.square().sum().backward();
          return x.grad as Tensor;
        };
        const expected = second(plain.clone().requiresGrad_());
        const x = distributeTensor(plain, mesh, [S1]).requiresGrad_();
        const mode = new CommDebugMode();
        const actual = mode.run(() => second(x));
        assert.equal(mode.getCommCounts()['allGather'] ?? 0, 0, name);
        await assertWhole(actual, expected, name);
      }
    });
  });
});
