/**
 * Factories and random ops have the same values on every mesh as on one device.
 */
import assert from 'node:assert/strict';
import {
  DeviceMesh,
  type DTensorRandomOptions,
  dtensorArange,
  dtensorEmpty,
  dtensorFull,
  dtensorLinspace,
  dtensorOnes,
  dtensorRand,
  dtensorRandint,
  dtensorRandn,
  dtensorZeros,
  initDeviceMesh,
  Partial,
  Replicate,
  Shard,
} from '../../lib/distributed.js';
import {
  arange,
  bernoulli,
  bfloat16,
  bool,
  defaultGenerator,
  float64,
  full,
  int32,
  int64,
  linspace,
  manualSeed,
  multinomial,
  nn,
  normal,
  ones,
  rand,
  randint,
  randn,
  type Tensor,
  zeros,
} from '../../lib/index.js';
import { gumbelSoftmax } from '../../lib/ops/smooth-activations.js';
import { reusedRanks } from '../distributed/support/reused-ranks.js';
import { Rng } from '../fuzz/rng.js';
import { assertWhole, drawSpec, placed } from './random-placements.js';

const shape = [5, 3, 4];

/** The plain factory, and the one of distributed tensors. */
const factories: Record<
  string,
  [plain: () => Tensor, sharded: (options: DTensorRandomOptions) => Tensor]
> = {
  zeros: [() => zeros(shape), (o) => dtensorZeros(shape, o)],
  ones: [
    () => ones(shape, { dtype: bfloat16 }),
    (o) => dtensorOnes(shape, { ...o, dtype: bfloat16 }),
  ],
  full: [
    () => full(shape, 7, { dtype: int64 }),
    (o) => dtensorFull(shape, 7, { ...o, dtype: int64 }),
  ],
  arange: [() => arange(-3, 20, 2), (o) => dtensorArange(-3, 20, 2, o)],
  'arange of numbers that are rounded': [
    () => arange(0, 9, 1.5, { dtype: int32 }),
    (o) => dtensorArange(0, 9, 1.5, { ...o, dtype: int32 }),
  ],
  linspace: [
    () => linspace(0, 1, 11, { dtype: float64 }),
    (o) => dtensorLinspace(0, 1, 11, { ...o, dtype: float64 }),
  ],
  rand: [() => rand(shape), (o) => dtensorRand(shape, o)],
  randn: [
    () => randn(shape, { dtype: float64 }),
    (o) => dtensorRandn(shape, { ...o, dtype: float64 }),
  ],
  randint: [() => randint(-4, 90, shape), (o) => dtensorRandint(-4, 90, shape, o)],
  'rand without elements': [() => rand([0, 3]), (o) => dtensorRand([0, 3], o)],
  'rand without dims': [() => rand([]), (o) => dtensorRand([], o)],
};

/** Functions that fill or draw beside a tensor. */
const draws: Record<string, (t: Tensor) => Tensor> = {
  uniform_: (t) => nn.init.uniform_(t, -1, 2),
  normal_: (t) => nn.init.normal_(t, 1, 2),
  truncNormal_: (t) => nn.init.truncNormal_(t, 0, 1, -0.5, 1),
  xavierUniform_: (t) => nn.init.xavierUniform_(t),
  xavierNormal_: (t) => nn.init.xavierNormal_(t),
  kaimingUniform_: (t) => nn.init.kaimingUniform_(t, { a: Math.sqrt(5) }),
  kaimingNormal_: (t) => nn.init.kaimingNormal_(t),
  orthogonal_: (t) => nn.init.orthogonal_(t),
  constant_: (t) => nn.init.constant_(t, 3),
  ones_: (t) => nn.init.ones_(t),
  exponential_: (t) => t.exponential_(2),
  random_: (t) => t.random_(10),
  bernoulli_: (t) => t.bernoulli_(0.3),
  dropout: (t) => nn.functional.dropout(t, 0.3),
  bernoulli: (t) => bernoulli(t.sigmoid()),
  multinomial: (t) => multinomial(t.sigmoid().reshape([5, 12]), 3),
  'multinomial with replacement': (t) =>
    multinomial(t.sigmoid().reshape([5, 12]), 20, { replacement: true }),
  gumbelSoftmax: (t) => gumbelSoftmax(t),
  'normal around a mean': (t) => normal(t, 2),
};

describe('factories of distributed tensors', () => {
  const ranks = reusedRanks(4);
  const meshes = [[4], [2, 2], [3]];

  for (const [name, [plain, sharded]] of Object.entries(factories)) {
    it(`have the values of plain factories: ${name}`, async () => {
      await ranks.run(async () => {
        const rng = new Rng(5);
        for (const size of meshes) {
          manualSeed(42);
          const expected = plain();
          const next = await rand([]).itemAsync();
          const mesh = initDeviceMesh('cpu', size);
          const { placements } = drawSpec(rng, mesh, expected, { partial: false });
          manualSeed(42);
          const actual = sharded({
            mesh,
            placements,
            ...(expected.dtype.isFloatingPoint ? { requiresGrad: true } : {}),
          });
          assert.equal(await rand([]).itemAsync(), next, 'draws go on alike');
          assert.deepEqual(
            [actual.placements, actual.requiresGrad, actual.isLeaf, actual.shape],
            [placements, expected.dtype.isFloatingPoint, true, expected.shape],
          );
          if (mesh.getCoordinate() !== null)
            await assertWhole(actual, expected, `${name} in ${placements.join()}`);
        }
      });
    });
  }

  it('create uninitialized tensors, and replicate without placements', async () => {
    await ranks.run(() => {
      const mesh = initDeviceMesh('cpu', [4]);
      const t = dtensorEmpty([6, 2], { mesh, placements: [Shard(0)], dtype: bool });
      assert.deepEqual([t.shape, t.dtype, t._localTensor.shape[1]], [[6, 2], bool, 2]);
      assert.deepEqual(dtensorZeros([2], { mesh }).placements, [Replicate()]);
    });
  });

  it('refuse Partial, placements that do not fit, and a mesh that is not a mesh', async () => {
    await ranks.run(() => {
      const mesh = DeviceMesh('cpu', [0, 1, 2, 3]);
      assert.throws(
        () => dtensorZeros([2], { mesh, placements: [Partial()] }),
        /dtensorZeros: expected Shard or Replicate, got \[Partial\(sum\)\]/,
      );
      assert.throws(
        () => dtensorZeros([2], { mesh, placements: [] }),
        /dtensorZeros: expected 1 placements/,
      );
      assert.throws(
        () => dtensorRand([2], { mesh, placements: [Shard(1)] }),
        /dtensorRand: Shard\(1\) does not fit/,
      );
      assert.throws(
        () => dtensorRand([2], {} as DTensorRandomOptions),
        /dtensorRand: expected mesh to be a DeviceMesh/,
      );
      assert.throws(
        () => dtensorOnes([2], { mesh, generator: defaultGenerator } as DTensorRandomOptions),
        /there is no option "generator"/,
      );
      assert.equal(zeros([2]).sharding, null, 'what failed leaves nothing behind');
    });
  });
});

describe('random ops on distributed tensors', () => {
  const ranks = reusedRanks(4);

  for (const [name, fn] of Object.entries(draws)) {
    it(`have the values of one device: ${name}`, async () => {
      await ranks.run(async () => {
        const rng = new Rng(9);
        const values = linspace(-1, 1, 60, { dtype: float64 }).reshape(shape);
        for (const size of [[4], [2, 2], [2, 1, 2]]) {
          const mesh = initDeviceMesh('cpu', size);
          for (let i = 0; i < 4; i++) {
            manualSeed(3);
            const expected = fn(values.clone());
            const spec = drawSpec(rng, mesh, values, { partial: false });
            manualSeed(3);
            await assertWhole(fn(placed(values, spec)), expected, `${name} of ${spec}`);
          }
        }
      });
    });
  }
});
