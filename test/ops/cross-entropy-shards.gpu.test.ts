/** The kernels of cross entropy for some of the classes: the GPU gives what the CPU gives. */
import assert from 'node:assert/strict';
import {
  bfloat16,
  crossEntropy,
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
import { skipWithoutCuda } from '../skip.js';
import { type Loss, ofAllClasses, ofShards, statisticsOf } from './shards-of-classes.js';

const room = new Map<DType, { rtol: number; atol: number }>([
  [float64, { rtol: 1e-11, atol: 1e-12 }],
  [float32, { rtol: 1.3e-5, atol: 1e-5 }],
  [float16, { rtol: 2e-3, atol: 1e-4 }],
  [bfloat16, { rtol: 1.6e-2, atol: 1e-4 }],
]);

const onGpu = (loss: Loss): Loss => ({
  ...loss,
  logits: loss.logits.to('cuda'),
  target: loss.target.to('cuda'),
  weight: loss.weight?.to('cuda') ?? null,
});

/** Ends of shards: short rows, whole vectors in blocks, others, and shards without classes. */
const splits: Record<string, number[]> = {
  'short shards': [3, 3, 40, 41],
  'shards of whole vectors': [4096, 8192, 16384],
  'shards of any length': [0, 5003, 9000, 12_000],
};

describe('cross entropy of shards of the classes on a GPU', () => {
  before(function () {
    skipWithoutCuda(this);
  });

  for (const [what, ends] of Object.entries(splits))
    for (const dtype of [float64, float32, float16, bfloat16])
      for (const labelSmoothing of [0, 0.3])
        it(`equals that on the CPU: ${what}, ${dtype.name}, smoothing ${labelSmoothing}`, () => {
          manualSeed(3);
          const classes = ends.at(-1) as number;
          const logits = randn([9, classes]).mul(3).to(dtype);
          const target = randint(0, classes, [9]);
          const incoming = randn([9], { dtype: dtype === float64 ? float64 : float32 });
          for (const weight of [null, rand([classes]).to(dtype)]) {
            const loss = { logits, target, weight, ignoreIndex: 2, labelSmoothing };
            const [got, expected] = [
              ofShards(onGpu(loss), incoming.to('cuda'), ends),
              ofShards(loss, incoming, ends),
            ];
            const inner = room.get(dtype === float64 ? float64 : float32);
            assert.ok(got.losses.cpu().allclose(expected.losses, inner), `${got.losses}`);
            assert.ok(got.gradient.cpu().allclose(expected.gradient, room.get(dtype)));
          }
        });

  for (const [what, ends] of Object.entries(splits))
    for (const labelSmoothing of [0, 0.3])
      for (const weighted of [false, true])
        it(`is near to float64 where logits are large: ${what}, smoothing ${labelSmoothing}, weights ${weighted}`, () => {
          manualSeed(5);
          const classes = ends.at(-1) as number;
          const bases = tensor([1e4, -1e4, 3e4, 0]).unsqueeze(1);
          const logits = randn([4, classes]).mul(3).add(bases);
          const target = randint(0, classes, [4]);
          const weight = weighted ? rand([classes]) : null;
          const loss = onGpu({ logits, target, weight, ignoreIndex: 2, labelSmoothing });
          const expected = ofAllClasses(loss, loss.logits.newOnes([4])).losses;
          const near = { rtol: 1e-5, atol: 1e-5 };
          const { losses } = ofShards(loss, loss.logits.newOnes([4]), ends);
          assert.ok(losses.to(float64).allclose(expected, near), `shards ${losses}, ${expected}`);
          const options = { weight: loss.weight ?? undefined, ignoreIndex: 2, labelSmoothing };
          for (const x of [loss.logits, loss.logits.detach().requiresGrad_()]) {
            const whole = crossEntropy(x, loss.target, { ...options, reduction: 'none' });
            const close = whole.to(float64).allclose(expected, near);
            assert.ok(close, `whole ${whole}, ${expected}`);
          }
        });

  it('reads shards that are contiguous, as ranks have them, and gives no weight to hidden ones', () => {
    manualSeed(4);
    const logits = randn([5, 8192]).to(bfloat16);
    const target = tensor([0n, 8192n, 20_000n, 9000n, 32_767n]);
    const options = { weight: null, ignoreIndex: -100, labelSmoothing: 0 };
    for (const first of [0, 8192, 24_576]) {
      const loss = { logits, target, ...options };
      const [got, expected] = [onGpu(loss), loss].map((each) => statisticsOf(each, first, 32_768));
      got?.forEach((t, i) => assert.ok(t.cpu().allclose(expected?.[i] ?? t, room.get(float32))));
    }
    const hidden = { logits: logits.mul(0).sub(Number.POSITIVE_INFINITY), target, ...options };
    const [lse, score] = statisticsOf(onGpu(hidden), 24_576, 32_768);
    assert.deepEqual(lse.flatten().tolist(), Array(5).fill(-Infinity));
    assert.deepEqual(score.tolist(), [0, 0, 0, 0, -Infinity]);
  });
});
