/** The kernels of cross entropy for some of the classes, against float64 on all of them. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  bfloat16,
  type DType,
  float16,
  float32,
  float64,
  manualSeed,
  rand,
  randint,
  randn,
  tensor,
} from '../../lib/index.js';
import { type Loss, ofAllClasses, ofShards, statisticsOf } from './shards-of-classes.js';

const room = new Map<DType, { rtol: number; atol: number }>([
  [float64, { rtol: 1e-11, atol: 1e-12 }],
  [float32, { rtol: 1.3e-5, atol: 1e-5 }],
  [float16, { rtol: 1e-3, atol: 1e-4 }],
  [bfloat16, { rtol: 1.6e-2, atol: 1e-4 }],
]);

function checkShards(loss: Loss, ends: readonly number[]): void {
  const { dtype, shape } = loss.logits;
  const incoming = randn([shape[0] as number], { dtype: dtype === float64 ? float64 : float32 });
  const got = ofShards(loss, incoming, ends);
  const expected = ofAllClasses(loss, incoming);
  const inner = room.get(dtype === float64 ? float64 : float32);
  assert.ok(got.losses.to(float64).allclose(expected.losses, inner), `${got.losses}`);
  assert.equal(got.gradient.dtype, dtype);
  const { gradient } = expected;
  assert.ok(got.gradient.to(float64).allclose(gradient, room.get(dtype)), `${got.gradient}`);
}

describe('cross entropy of shards of the classes', () => {
  it('gives the losses and the gradient of all classes, for any shards, dtype and options', () => {
    const cases = fc.record({
      rows: fc.integer({ min: 0, max: 5 }),
      ends: fc.array(fc.nat(40), { minLength: 1, maxLength: 5 }),
      dtype: fc.constantFrom(float64, float32, float16, bfloat16),
      weighted: fc.boolean(),
      labelSmoothing: fc.constantFrom(0, 0.3),
      ignores: fc.boolean(),
      transposed: fc.boolean(),
      seed: fc.nat(1000),
    });
    fc.assert(
      fc.property(cases, ({ rows, ends, dtype, weighted, labelSmoothing, ignores, ...others }) => {
        manualSeed(others.seed);
        const sorted = ends.toSorted((a, b) => a - b);
        const classes = (sorted.at(-1) as number) + 1;
        const target = randint(0, classes, [rows]);
        const x = others.transposed ? randn([classes, rows]).t() : randn([rows, classes]);
        const logits = x.mul(3).to(dtype);
        const weight = weighted ? rand([classes]).to(dtype) : null;
        const ignoreIndex = ignores ? classes - 1 : -100;
        checkShards({ logits, target, weight, ignoreIndex, labelSmoothing }, [...sorted, classes]);
      }),
      { numRuns: 100 },
    );
  });

  it('takes a shard without visible classes, and large logits, as no or all weight', () => {
    const hidden = randn([3, 12], { dtype: float64 });
    hidden.narrow(1, 4, 4).fill_(Number.NEGATIVE_INFINITY);
    hidden.narrow(1, 8, 4).add_(700);
    const target = tensor([0n, 9n, 11n]);
    const options = { weight: null, ignoreIndex: -100, labelSmoothing: 0 };
    checkShards({ logits: hidden, target, ...options }, [4, 8, 12]);
    const lone: Loss = { logits: hidden.narrow(1, 4, 4), target, ...options };
    const [lse, score] = statisticsOf(lone, 4, 12);
    assert.deepEqual(lse.tolist(), [[-Infinity], [-Infinity], [-Infinity]]);
    assert.deepEqual(score.tolist(), [0, 0, 0]);
  });

  it('refuses a shard that reaches beyond the classes, and targets that are none', () => {
    const logits = randn([2, 4]);
    const options = { weight: null, ignoreIndex: -100, labelSmoothing: 0 };
    const of = (targets: bigint[], first: number) => () =>
      statisticsOf({ logits, target: tensor(targets), ...options }, first, 8);
    assert.throws(of([0n, 7n], 5), /inside\(firstClass, c, classes\)/);
    assert.throws(of([0n, 8n], 4), /target 8 at position 1 is not a class: there are 8/);
    of([0n, 7n], 4)();
  });
});
