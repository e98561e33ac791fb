/**
 * Ranks that draw for a distributed tensor draw the same numbers, whatever they have seeded and
 * drawn for themselves.
 */
import assert from 'node:assert/strict';
import {
  CollectiveError,
  type DeviceMesh,
  DTensor,
  distributeTensor,
  dtensorRand,
  dtensorRandint,
  dtensorRandn,
  initDeviceMesh,
  parallelizeModule,
  Replicate,
  SequenceParallel,
  Shard,
} from '../../lib/distributed.js';
import {
  ArgumentError,
  bernoulli,
  Generator,
  getRngState,
  linspace,
  manualSeed,
  multinomial,
  nn,
  normal,
  type RngState,
  rand,
  randn,
  randnLike,
  seed,
  setRngState,
  type Tensor,
} from '../../lib/index.js';
import { gumbelSoftmax } from '../../lib/ops/smooth-activations.js';
import { errorOf, valuesOf } from '../distributed/support/on-ranks.js';
import { reusedRanks } from '../distributed/support/reused-ranks.js';

const meshOf = (): DeviceMesh => initDeviceMesh('cpu', [2, 2], { meshDimNames: ['dp', 'tp'] });
const copies = (mesh: DeviceMesh): Tensor =>
  distributeTensor(linspace(-1, 1, 60).reshape([5, 12]), mesh, [Replicate(), Replicate()], {
    srcDataRank: null,
  });

/** Of each rank: a tensor that every rank has. */
const draws: Record<string, (mesh: DeviceMesh) => Tensor> = {
  dtensorRandn: (mesh) => dtensorRandn([7], { mesh }),
  dtensorRand: (mesh) => dtensorRand([7], { mesh }),
  dtensorRandint: (mesh) => dtensorRandint(0, 1000, [7], { mesh }),
  'a factory of parts': (mesh) =>
    dtensorRandn([7, 2], { mesh, placements: [Shard(0), Replicate()] }).redistribute([
      Replicate(),
      Replicate(),
    ]),
  dropout: (mesh) => nn.functional.dropout(copies(mesh)),
  randnLike: (mesh) => randnLike(copies(mesh)),
  bernoulli: (mesh) => bernoulli(copies(mesh).sigmoid()),
  multinomial: (mesh) => multinomial(copies(mesh).sigmoid(), 3),
  'multinomial with replacement': (mesh) =>
    multinomial(copies(mesh).sigmoid(), 20, { replacement: true }),
  'normal around a mean': (mesh) => normal(copies(mesh), 2),
  gumbelSoftmax: (mesh) => gumbelSoftmax(copies(mesh)),
  'dropout of attention': (mesh) => {
    const q = copies(mesh).reshape([1, 1, 5, 12]);
    return nn.functional.scaledDotProductAttention(q, q, q, { dropoutP: 0.5 });
  },
  normal_: (mesh) => copies(mesh).normal_(),
  exponential_: (mesh) => copies(mesh).exponential_(),
  random_: (mesh) => copies(mesh).random_(100),
  kaimingUniform_: (mesh) => nn.init.kaimingUniform_(copies(mesh)),
  truncNormal_: (mesh) => nn.init.truncNormal_(copies(mesh)),
  orthogonal_: (mesh) => nn.init.orthogonal_(copies(mesh)),
  'a generator of one seed that each has drawn from': (mesh) => {
    const generator = new Generator(3);
    for (let i = 0; i < mesh.getRank(); i++) rand([1], { generator });
    return dtensorRandn([7], { mesh, generator });
  },
};

describe('random numbers of a mesh whose ranks have different seeds', () => {
  const ranks = reusedRanks(4);

  for (const [name, draw] of Object.entries(draws)) {
    it(`are equal on all ranks: ${name}`, async () => {
      const [first, ...others] = await ranks.run((rank) => {
        seed();
        for (let i = 0; i < rank; i++) rand([1]);
        return valuesOf(draw(meshOf()).toLocal());
      });
      for (const values of others) assert.deepEqual(values, first);
    });
  }

  it('differ between draws, and for plain tensors between ranks', async () => {
    const drawn = await ranks.run(async () => {
      seed();
      const mesh = meshOf();
      return Promise.all(
        [dtensorRandn([3], { mesh }), dtensorRandn([3], { mesh }), randn([3])].map((t) =>
          valuesOf(t.sharding === null ? t : t.toLocal()),
        ),
      );
    });
    assert.equal(new Set(drawn.flat().map(String)).size, 2 + 4);
  });

  it('equal those of one device after manualSeed, whatever plain tensors the ranks draw', async () => {
    manualSeed(1);
    const expected = [randn([3]), rand([2, 2])].map((t) => t.tolist());
    await ranks.run(async (rank) => {
      manualSeed(1);
      const mesh = meshOf();
      if (rank === 1) rand([5]);
      const first = dtensorRandn([3], { mesh, placements: [Shard(0), Replicate()] });
      if (rank === 2) rand([5]);
      const second = dtensorRand([2, 2], { mesh, placements: [Replicate(), Shard(1)] });
      for (const [i, t] of [first, second].entries())
        assert.deepEqual(await valuesOf(t.fullTensor()), (expected[i] as number[]).flat());
    });
  });

  it('advance only with draws of all ranks of a mesh, also on slices and on larger meshes', async () => {
    manualSeed(2);
    const expected = [0, 1, 2, 3, 4].map(() => rand([2]).tolist());
    await ranks.run(async (rank) => {
      manualSeed(2);
      const mesh = meshOf();
      const tp = mesh.get('tp');
      const drawsAs = async (on: DeviceMesh, draw: number): Promise<void> =>
        assert.deepEqual(await valuesOf(dtensorRand([2], { mesh: on }).toLocal()), expected[draw]);
      await drawsAs(mesh, 0);
      const more = rank < 2 ? 2 : 1;
      for (let i = 0; i < more; i++) await drawsAs(tp, 1 + i);
      await drawsAs(initDeviceMesh('cpu', [4]), 1);
      await drawsAs(tp, 2 + more);
    });
  });

  it('cause an error at the next communication if the ranks were given different seeds', async () => {
    const messages = await ranks.run(async (rank) => {
      manualSeed(rank === 2 ? 8 : 7);
      const t = dtensorRandn([8], { mesh: initDeviceMesh('cpu', [4]), placements: [Shard(0)] });
      const error = await errorOf(t.fullTensor().read());
      assert.ok(error instanceof CollectiveError, error.stack);
      return error.message;
    });
    for (const message of messages) {
      assert.match(message, /after draw 0 from seed 7 to redistribute/);
      assert.match(message, /after draw 0 from seed 8 to redistribute/);
      assert.match(message, /all of them call manualSeed\(\) with one seed/);
    }
  });
});

describe('the RNG state of a program with ranks', () => {
  const ranks = reusedRanks(2);

  it('is plain data and restores draws on meshes too', async () => {
    await ranks.run(async (rank) => {
      seed();
      const mesh = initDeviceMesh('cpu', [2]);
      const own = initDeviceMesh('cpu', [1]);
      for (let i = 0; i < rank + 1; i++) rand([1]);
      dtensorRand([1], { mesh });
      if (rank === 0) dtensorRand([1], { mesh: own });
      const state = JSON.parse(JSON.stringify(getRngState())) as RngState;
      const drawAll = (): Promise<number[][]> =>
        Promise.all(
          [
            rand([2]),
            dtensorRand([2], { mesh }).toLocal(),
            dtensorRand([2], { mesh: own }).toLocal(),
          ].map((t) => valuesOf(t)),
        );
      const first = await drawAll();
      setRngState(state);
      assert.deepEqual(await drawAll(), first);
    });
  });

  it('may come from one device, and draws on meshes continue from it', async () => {
    manualSeed(5);
    rand([3]);
    const state = getRngState();
    const next = randn([4]).tolist();
    await ranks.run(async () => {
      setRngState({ seed: state.seed, offset: state.offset });
      assert.deepEqual(
        await valuesOf(dtensorRandn([4], { mesh: initDeviceMesh('cpu', [2]) }).toLocal()),
        next,
      );
    });
  });

  it('is refused if it is malformed', () => {
    const bad = [
      { seed: -1, offset: 0, draws: {} },
      { seed: 0, offset: 0.5, draws: {} },
      { seed: 0, offset: 0, draws: { x: 1 } },
      { seed: 0, offset: 0, draws: { '0-1': -1 } },
      { seed: 0, offset: 0 },
      5,
      null,
    ];
    for (const onMeshes of bad)
      assert.throws(
        () => new Generator().setState({ seed: 0, offset: 0, onMeshes: onMeshes as never }),
        ArgumentError,
        JSON.stringify(onMeshes),
      );
  });
});

describe('parameters that the ranks initialized with different values', () => {
  const ranks = reusedRanks(2);

  it('become equal when SequenceParallel replicates them, unless srcDataRank is null', async () => {
    const weights = await ranks.run(async (rank) => {
      const mesh = initDeviceMesh('cpu', [2]);
      const made = (): nn.LayerNorm => {
        const layer = new nn.LayerNorm(4);
        nn.init.constant_(layer.weight as Tensor, rank + 1);
        return layer;
      };
      const agreed = parallelizeModule(made(), mesh, SequenceParallel());
      const own = parallelizeModule(made(), mesh, SequenceParallel(), { srcDataRank: null });
      assert.ok(agreed.weight instanceof DTensor);
      return Promise.all(
        [agreed, own].map((layer) => valuesOf((layer.weight as Tensor).detach().toLocal())),
      );
    });
    assert.deepEqual(
      weights.map(([agreed, own]) => [agreed?.[0], own?.[0]]),
      [
        [1, 1],
        [1, 2],
      ],
    );
  });
});
