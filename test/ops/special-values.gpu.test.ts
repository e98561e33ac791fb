/** The GPU equals the CPU for intermediate values beyond 16 bits, and for Adam with beta1 = 0. */
import assert from 'node:assert/strict';
import {
  bfloat16,
  type DType,
  float16,
  float32,
  float64,
  hypot,
  logaddexp,
  logaddexp2,
  nn,
  optim,
  stdMean,
  type Tensor,
  tensor,
  xlogy,
} from '../../lib/index.js';
import { skipWithoutCuda } from '../skip.js';

const { functional: F } = nn;
const device = 'cuda' as const;

describe('special values on a GPU', () => {
  before(function () {
    skipWithoutCuda(this);
  });

  it('are finite in standard deviations of 16-bit floats whose variance needs float32', () => {
    for (const [dtype, values] of [
      [float16, [1000, -1000]],
      [float16, [1e-4, 2e-4, 3e-4]],
      [bfloat16, [1000, -1000]],
    ] as const) {
      const make = (place: 'cpu' | 'cuda'): Tensor => tensor([...values], { dtype, device: place });
      assert.deepEqual(make(device).std().tolist(), make('cpu').std().tolist());
      const [deviation, mean] = stdMean(make(device));
      assert.deepEqual([deviation.dtype, mean.dtype], [dtype, dtype]);
      assert.deepEqual(deviation.tolist(), make('cpu').std().tolist());
    }
  });

  it('equal those of the CPU in compositions of two operands, at ties and infinities, too', () => {
    const a = [0, 1, 1, Number.POSITIVE_INFINITY, -3, 100];
    const b = [0, 1, 3, Number.POSITIVE_INFINITY, 4, -100];
    const run = (
      op: (x: Tensor, y: Tensor) => Tensor,
      dtype: DType,
      place: 'cpu' | 'cuda',
    ): Tensor[] => {
      const [x, y] = [a, b].map((v) => tensor(v, { dtype, device: place, requiresGrad: true })) as [
        Tensor,
        Tensor,
      ];
      const result = op(x, y);
      result.sum().backward();
      return [result, x.grad as Tensor, y.grad as Tensor].map((t) => t.detach());
    };
    for (const op of [
      logaddexp,
      logaddexp2,
      hypot,
      (x: Tensor, y: Tensor) => xlogy(x, y.abs()),
      (x: Tensor, y: Tensor) => F.celu(x.sub(y)),
    ])
      for (const dtype of [float16, bfloat16, float32, float64]) {
        const expected = run(op, dtype, 'cpu');
        const given = run(op, dtype, device).map((t) => t.cpu());
        const [rtol, atol] = dtype.itemsize === 2 ? [1e-2, 1e-3] : [1e-5, 1e-7];
        given.forEach((t, i) => {
          assert.ok(
            t.allclose(expected[i] as Tensor, { rtol, atol, equalNan: true }),
            `${t}\nexpected ${expected[i]}`,
          );
        });
      }
  });

  it('are correct in the first moment of Adam with beta1 = 0 after larger gradients', () => {
    const p = new nn.Parameter(tensor([0, 0], { device }));
    const adam = new optim.Adam([p], { betas: [0, 0.9], lr: 0.1, fused: true });
    for (const size of [100, 1e-6]) {
      p.grad = tensor([size, size], { device });
      adam.step();
    }
    const { exp_avg } = adam.state.get(p) as Record<'exp_avg', Tensor>;
    assert.deepEqual(exp_avg.tolist(), tensor([1e-6, 1e-6]).tolist());
  });
});
