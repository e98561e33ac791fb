/**
 * Logits masked by the lowest finite number, as Hugging Face models do: they have no weight beside
 * others, and equal weights if all are masked.
 */
import assert from 'node:assert/strict';
import {
  bfloat16,
  type DType,
  finfo,
  float16,
  float32,
  float64,
  int64,
  nn,
  randn,
  type Tensor,
  tensor,
  where,
} from '../../lib/index.js';
import { skipWithoutCuda } from '../skip.js';

const { functional: F } = nn;
const lengths = [8, 40, 1024, 1032, 2048, 4096, 20_000];
const tolerance = new Map<DType, number>([
  [float16, 2e-3],
  [bfloat16, 1.6e-2],
  [float32, 1e-5],
  [float64, 1e-12],
]);

/** Visible elements in rows of n: only the first, all but the first eight, none, every second. */
const seen = [
  (i: number) => i === 0,
  (i: number, n: number) => i >= Math.min(8, n - 1),
  () => false,
  (i: number) => i % 2 === 0,
];
const blindRow = 2;

const values = (t: Tensor): number[][] => t.cpu().to(float64).tolist() as number[][];

/** `least`: minimal size for the tolerance. */
function near(
  got: readonly number[],
  want: readonly number[],
  room: number,
  what: string,
  least = 0.01,
): void {
  assert.equal(got.length, want.length, what);
  const wrong = got.findIndex(
    (value, i) =>
      !(Math.abs(value - (want[i] as number)) <= room * (Math.abs(want[i] as number) + least)),
  );
  assert.equal(wrong, -1, `${what}: element ${wrong} is ${got[wrong]}, expected ${want[wrong]}`);
}

/** Softmax of a row in float64. */
const probabilities = (row: readonly number[]): number[] => {
  const largest = row.reduce((a, b) => Math.max(a, b));
  const powers = row.map((value) => Math.exp(value - largest));
  const sum = powers.reduce((a, b) => a + b);
  return powers.map((value) => value / sum);
};

type Operands = [q: Tensor, k: Tensor, v: Tensor];

/** The result of attention, and the gradients of its operands. */
function attention(
  operands: Operands,
  attnMask: Tensor,
  gradient: Tensor,
  device: 'cpu' | 'cuda',
): Tensor[] {
  const [q, k, v] = operands.map((t) => t.detach().to(device).requiresGrad_()) as Operands;
  const out = F.scaledDotProductAttention(q, k, v, { attnMask: attnMask.to(device) });
  out.backward(gradient.to(device));
  return [out.detach(), ...[q, k, v].map((leaf) => leaf.grad as Tensor)].map((t) => t.cpu());
}

const flat = (t: Tensor): number[] => t.to(float64).flatten().tolist() as number[];

for (const device of ['cpu', 'cuda'] as const) {
  describe(`logits masked by the lowest finite number on ${device}`, () => {
    before(function () {
      if (device === 'cuda') skipWithoutCuda(this);
    });

    for (const [dtype, room] of tolerance) {
      const drawn = (n: number): { logits: Tensor; visible: boolean[][]; exact: number[][] } => {
        const visible = seen.map((sees) => Array.from({ length: n }, (_, i) => sees(i, n)));
        const logits = where(
          tensor(visible),
          randn([seen.length, n], { dtype: float64 }).mul(3),
          tensor(finfo(dtype).min, { dtype: float64 }),
        ).to(dtype);
        return { logits: logits.to(device), visible, exact: values(logits) };
      };
      it(`have the softmax of the others, of ${dtype}`, () => {
        for (const n of lengths) {
          const { logits, exact } = drawn(n);
          const got = values(F.softmax(logits, -1));
          for (const [r, row] of exact.entries())
            near(got[r] as number[], probabilities(row), room, `row ${r} of ${n}`);
        }
      });

      it(`have the cross entropy of the others and its gradient, of ${dtype}`, () => {
        for (const n of lengths) {
          const { logits, visible, exact } = drawn(n);
          const targets = visible.map((row) => Math.max(0, row.indexOf(true)));
          const x = logits.detach().requiresGrad_();
          const losses = F.crossEntropy(x, tensor(targets, { device, dtype: int64 }), {
            reduction: 'none',
          });
          losses.sum().backward();
          const [lost, gradients] = [
            losses.cpu().to(float64).tolist() as number[],
            values(x.grad as Tensor),
          ];
          for (const [r, row] of exact.entries()) {
            if (!(visible[r] as boolean[]).includes(true)) continue;
            const p = probabilities(row);
            const target = targets[r] as number;
            near(
              [lost[r] as number],
              [-Math.log(p[target] as number)],
              dtype === float64 ? room : Math.max(room, 1e-5),
              `loss ${r} of ${n}`,
              room < 1e-4 ? 1 : 0.01,
            ); // the loss is the log of the sum minus the logit, which are both larger
            near(
              gradients[r] as number[],
              p.map((value, i) => value - (i === target ? 1 : 0)),
              room,
              `gradient ${r} of ${n}`,
            );
          }
        }
      });

      it(`give attention with an added mask the values of a bool mask, and weight keys equally in rows that are all masked, of ${dtype}`, () => {
        const keys = 70;
        const visible = tensor(
          seen.map((sees) => Array.from({ length: keys }, (_, i) => sees(i, keys))),
        );
        const added = where(
          visible,
          tensor(0, { dtype: float64 }),
          tensor(finfo(dtype).min, { dtype: float64 }),
        ).to(dtype);
        for (const depth of [16, 128, 160]) {
          const [q, k, v] = [seen.length, keys, keys].map((rows) =>
            randn([1, 2, rows, depth]).to(dtype),
          ) as Operands;
          const g = where(
            visible.any(1, { keepdim: true }),
            randn([1, 2, seen.length, depth]),
            0,
          ).to(dtype); // the loss counts only rows with a visible element
          const [got, want] = [added, visible].map((mask) =>
            attention([q, k, v], mask, g, device),
          ) as [Tensor[], Tensor[]];
          const blind = (got[0] as Tensor).select(2, blindRow).clone();
          // as with a bool mask that masks everything
          (got[0] as Tensor).select(2, blindRow).zero_();
          for (const [i, what] of [
            'result',
            'gradient of q',
            'gradient of k',
            'gradient of v',
          ].entries())
            near(
              flat(got[i] as Tensor),
              flat(want[i] as Tensor),
              room,
              `${what} of depth ${depth}`,
            );
          // The lowest number of float16 does not absorb a score, which is float32: the remainder
          // still counts.
          const alike =
            dtype === float16
              ? F.scaledDotProductAttention(q, k, v).select(2, blindRow)
              : v.to(float64).mean(2);
          near(
            flat(blind),
            flat(alike),
            dtype === float16 ? 0.2 : room,
            `the blind row of depth ${depth}`,
          );
        }
      });

      it(`never give attention a weight above 1 if a large mask exceeds the sum of weights, of ${dtype}`, () => {
        const [q, k, v, g] = [3, 40, 40, 3].map((rows) => randn([1, 1, rows, 64]).to(dtype)) as [
          ...Operands,
          Tensor,
        ];
        const largest = flat(g).reduce((sum, value) => sum + Math.abs(value), 0);
        for (const added of [2 ** 13, 2 ** 15, 2 ** 22, 2 ** 25, 2 ** 27, 2 ** 30, 2 ** 100].filter(
          (value) => value < finfo(dtype).max,
        )) {
          const [, ...gradients] = attention(
            [q, k, v],
            tensor(-added).to(dtype).expand([3, 40]),
            g,
            device,
          );
          for (const value of gradients.flatMap(flat))
            assert.ok(Number.isFinite(value), `mask ${-added}: ${value}`);
          for (const value of flat(gradients[2] as Tensor))
            assert.ok(
              Math.abs(value) <= largest * 1.01,
              `mask ${-added}: ${value}, of gradients of ${largest}`,
            );
        }
      });
    }
  });
}
