/**
 * Calls whose operands must fit each other, which random arguments rarely do: mostly correct,
 * sometimes wrong in one argument.
 */
import {
  addRmsNorm,
  bfloat16,
  bool,
  cat,
  crossEntropy,
  type DType,
  einsum,
  float16,
  float32,
  float64,
  int64,
  layerNorm,
  linear,
  nn,
  optim,
  rmsNorm,
  scaledDotProductAttention,
  type Tensor,
} from '../../lib/index.js';
import type { Rng } from './rng.js';
import { anyIndex, anyNumber, anyTensor } from './tensors.js';

/** A call with a description that is known before it runs. */
export interface FittedCall {
  name: string;
  run: () => unknown;
}

const floats: readonly DType[] = [float32, float32, float64, float16, bfloat16];

/** A tensor that mostly fits: one in twelve does not, and one in six is a strided view. */
function fitting(rng: Rng, shape: number[], dtype: DType): Tensor {
  if (rng.chance(0.08)) return anyTensor(rng);
  if (shape.length > 1 && rng.chance(0.16))
    return anyTensor(rng, [...shape].reverse(), dtype).permute(
      shape.map((_, i) => shape.length - 1 - i),
    );
  const t = anyTensor(rng, shape, dtype);
  return rng.chance(0.2) && dtype.isFloatingPoint ? t.detach().clone().requiresGrad_() : t;
}

function size(rng: Rng): number {
  return rng.pick([0, 1, 1, 2, 3, 4, 5, 8, 17, 33, 65]);
}

function attention(rng: Rng, dtype: DType): FittedCall {
  const keyHeads = rng.int(1, 2);
  const enableGqa = rng.chance(0.3);
  const heads = enableGqa ? keyHeads * rng.int(1, 2) : keyHeads;
  const [batch, queries, keys, depth, values] = [
    rng.int(0, 2),
    size(rng),
    size(rng),
    size(rng),
    size(rng),
  ];
  const q = fitting(rng, [batch, heads, queries, depth], dtype);
  const k = fitting(rng, [batch, keyHeads, keys, depth], dtype);
  const v = fitting(rng, [batch, keyHeads, keys, values], dtype);
  const masks: ([number[], DType] | null)[] = [
    null,
    [[queries, keys], bool],
    [[1, 1, queries, keys], dtype],
    [[batch, heads, 1, keys], dtype],
    [[keys], bool],
  ];
  const chosen = rng.pick(masks);
  const attnMask = chosen === null ? null : fitting(rng, ...chosen);
  const isCausal = attnMask === null && rng.chance(0.4);
  const options = {
    attnMask,
    isCausal,
    enableGqa,
    dropoutP: rng.chance(0.2) ? rng.pick([0.5, 1, 0.99, 2]) : 0,
    scale: rng.chance(0.2) ? anyNumber(rng) : null,
  };
  return {
    name: `attention ${q.shape} ${k.shape} ${v.shape} mask ${attnMask?.shape} ${dtype.name}`,
    run: () => scaledDotProductAttention(q, k, v, options),
  };
}

function products(rng: Rng, dtype: DType): FittedCall {
  const [batch, m, k, n] = [rng.int(0, 3), size(rng), size(rng), size(rng)];
  const calls: (() => unknown)[] = [
    () => fitting(rng, [m, k], dtype).matmul(fitting(rng, [k, n], dtype)),
    () =>
      fitting(rng, [batch, m, k], dtype).matmul(
        fitting(rng, [rng.chance(0.5) ? 1 : batch, k, n], dtype),
      ),
    () =>
      fitting(rng, [m, n], dtype).addmm(fitting(rng, [m, k], dtype), fitting(rng, [k, n], dtype), {
        alpha: anyNumber(rng),
        beta: anyNumber(rng),
      }),
    () => fitting(rng, [n], dtype).addmm(fitting(rng, [m, k], dtype), fitting(rng, [k, n], dtype)),
    () =>
      linear(
        fitting(rng, [batch, m, k], dtype),
        fitting(rng, [n, k], dtype),
        rng.chance(0.5) ? fitting(rng, [n], dtype) : null,
      ),
    () =>
      einsum(
        'bij,bjk->bik',
        fitting(rng, [batch, m, k], dtype),
        fitting(rng, [batch, k, n], dtype),
      ),
  ];
  const run = rng.pick(calls);
  return { name: `product ${batch} ${m} ${k} ${n} ${dtype.name}`, run };
}

function losses(rng: Rng, dtype: DType): FittedCall {
  const [rows, classes] = [size(rng), size(rng)];
  const target = rng.chance(0.7)
    ? fitting(rng, [rows], int64).clamp({ min: 0, max: classes - 1 })
    : anyIndex(rng, [rows]);
  const options = {
    weight: rng.chance(0.3) ? fitting(rng, [classes], dtype) : null,
    labelSmoothing: rng.chance(0.3) ? 0.1 : 0,
    ignoreIndex: rng.pick([-100, 0, 1]),
    reduction: rng.pick(['none', 'mean', 'sum'] as const),
  };
  return {
    name: `crossEntropy ${rows} ${classes} ${dtype.name}`,
    run: () => crossEntropy(fitting(rng, [rows, classes], dtype), target, options),
  };
}

function norms(rng: Rng, dtype: DType): FittedCall {
  const [rows, n] = [size(rng), size(rng)];
  const weight = rng.chance(0.7) ? fitting(rng, [n], dtype) : null;
  const bias = weight !== null && rng.chance(0.7) ? fitting(rng, [n], dtype) : null;
  const x = (): Tensor => fitting(rng, [rows, n], dtype);
  const calls = [
    () => layerNorm(x(), [n], weight, bias),
    () => rmsNorm(x(), [n], weight),
    () => addRmsNorm(x(), x(), [n], weight),
  ];
  return { name: `norm ${rows} ${n} ${dtype.name}`, run: rng.pick(calls) };
}

function indexing(rng: Rng, dtype: DType): FittedCall {
  const [a, n, b, k] = [size(rng), rng.int(1, 6), size(rng), rng.int(0, 9)];
  const x = (): Tensor => fitting(rng, [a, n, b], dtype);
  const at = (shape: number[]): Tensor =>
    rng.chance(0.9) ? fitting(rng, shape, int64).remainder(n).abs() : anyIndex(rng, shape);
  const calls: (() => unknown)[] = [
    () => x().indexSelect(1, at([k])),
    () => x().indexAdd(1, at([k]), fitting(rng, [a, k, b], dtype)),
    () => x().indexAdd_(1, at([k]), fitting(rng, [a, k, b], dtype)),
    () => x().gather(1, at([a, k, b])),
    () =>
      x().scatter(1, at([a, k, b]), fitting(rng, [a, k, b], dtype), {
        reduce: rng.pick(['set', 'add', 'multiply', 'amax', 'amin']),
      }),
    () => x().scatter_(1, at([a, k, b]), anyNumber(rng)),
    () => x().index([null, at([k]), null]),
    () =>
      x().indexPut([null, at([k])], fitting(rng, [a, k, b], dtype), {
        accumulate: rng.chance(0.5),
      }),
    () => x().indexPut_([null, at([k])], fitting(rng, [], dtype), { accumulate: rng.chance(0.5) }),
    () => x().where(fitting(rng, [n, b], bool), x()),
    () => x().maskedSelect(fitting(rng, [a, n, b], bool)),
    () => cat([x(), x()], rng.int(-3, 2)),
  ];
  return { name: `index ${a} ${n} ${b} ${k} ${dtype.name}`, run: rng.pick(calls) };
}

/** Parameters of any layout, a loss and a step; some of the tensors are freed in between. */
function training(rng: Rng): FittedCall {
  return {
    name: 'training step',
    run: () => {
      const parameters = rng.list(
        rng.int(1, 4),
        () => new nn.Parameter(anyTensor(rng, undefined, rng.pick([float32, float64])).detach()),
      );
      const makers = [
        () =>
          new optim.SGD(parameters, {
            lr: 0.1,
            momentum: rng.pick([0, 0.9]),
            foreach: rng.pick([null, false]),
          }),
        () =>
          new optim.Adam(parameters, {
            amsgrad: rng.chance(0.5),
            foreach: rng.pick([null, false]),
          }),
        () => new optim.AdamW(parameters, { lr: anyNumber(rng) }),
      ];
      const optimizer = rng.pick(makers)();
      for (let step = 0; step < 2; step++) {
        for (const p of parameters) p.mul(2).sum().backward();
        if (rng.chance(0.1)) rng.pick(parameters).untypedStorage().resize_(0);
        if (rng.chance(0.1)) rng.pick(parameters).grad?.dispose();
        optimizer.step();
        optimizer.zeroGrad();
      }
    },
  };
}

export function fittedCall(rng: Rng): FittedCall {
  const dtype = rng.chance(0.9) ? rng.pick(floats) : int64;
  return rng.pick([attention, products, losses, norms, indexing, indexing, training])(rng, dtype);
}
