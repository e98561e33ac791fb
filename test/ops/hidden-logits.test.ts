/** Logits that a mask hides by the lowest finite number, as models of Hugging Face do: they count nothing beside any other, and all alike by themselves. */
import assert from 'node:assert/strict';
import { bfloat16, type DType, finfo, float16, float32, float64, int64, nn, randn, type Tensor, tensor, where } from '../../lib/index.js';
import { skipWithoutCuda } from '../skip.js';

const { functional: F } = nn;
const lengths = [8, 40, 1024, 1032, 2048, 4096, 20_000];
const tolerance = new Map<DType, number>([
  [float16, 2e-3],
  [bfloat16, 1.6e-2],
  [float32, 1e-5],
  [float64, 1e-12],
]);

/** Of rows of n: only the first element is seen, all but the first eight, none, every second. */
const seen = [(i: number) => i === 0, (i: number, n: number) => i >= Math.min(8, n - 1), () => false, (i: number) => i % 2 === 0];

const values = (t: Tensor): number[][] => t.cpu().to(float64).tolist() as number[][];

function near(got: readonly number[], want: readonly number[], room: number, what: string): void {
  const wrong = got.findIndex((value, i) => !(Math.abs(value - (want[i] as number)) <= room * (Math.abs(want[i] as number) + 0.01)));
  assert.equal(wrong, -1, `${what}: element ${wrong} is ${got[wrong]}, expected ${want[wrong]}`);
}

/** Of a row, in float64. */
const probabilities = (row: readonly number[]): number[] => {
  const largest = row.reduce((a, b) => Math.max(a, b));
  const powers = row.map((value) => Math.exp(value - largest));
  const sum = powers.reduce((a, b) => a + b);
  return powers.map((value) => value / sum);
};

for (const device of ['cpu', 'cuda'] as const) {
  describe(`logits that are hidden by the lowest number, on ${device}`, () => {
    before(function () {
      if (device === 'cuda') skipWithoutCuda(this);
    });

    for (const [dtype, room] of tolerance) {
      const drawn = (n: number): { logits: Tensor; visible: boolean[][]; exact: number[][] } => {
        const visible = seen.map((sees) => Array.from({ length: n }, (_, i) => sees(i, n)));
        const logits = where(tensor(visible), randn([seen.length, n], { dtype: float64 }).mul(3), tensor(finfo(dtype).min, { dtype: float64 })).to(dtype);
        return { logits: logits.to(device), visible, exact: values(logits) };
      };
      it(`softmax of ${dtype}`, () => {
        for (const n of lengths) {
          const { logits, exact } = drawn(n);
          const got = values(F.softmax(logits, -1));
          for (const [r, row] of exact.entries()) near(got[r] as number[], probabilities(row), room, `row ${r} of ${n}`);
        }
      });

      it(`cross entropy of ${dtype}, and its gradient`, () => {
        for (const n of lengths) {
          const { logits, visible, exact } = drawn(n);
          const targets = visible.map((row) => Math.max(0, row.indexOf(true)));
          const x = logits.detach().requiresGrad_();
          const losses = F.crossEntropy(x, tensor(targets, { device, dtype: int64 }), { reduction: 'none' });
          losses.sum().backward();
          const [lost, gradients] = [losses.cpu().to(float64).tolist() as number[], values(x.grad as Tensor)];
          for (const [r, row] of exact.entries()) {
            if (!(visible[r] as boolean[]).includes(true)) continue;
            const p = probabilities(row);
            const target = targets[r] as number;
            near([lost[r] as number], [-Math.log(p[target] as number)], Math.max(room, 1e-5), `loss ${r} of ${n}`);
            near(
              gradients[r] as number[],
              p.map((value, i) => value - (i === target ? 1 : 0)),
              room,
              `gradient ${r} of ${n}`,
            );
          }
        }
      });
    }
  });
}
