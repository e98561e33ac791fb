/**
 * Our implementation of the rows: operands, one call, and samples of its results with references in
 * float64 on the CPU.
 */
import {
  addRmsNorm,
  autograd,
  bfloat16,
  bool,
  crossEntropy,
  type DType,
  embedding,
  float32,
  float64,
  layerNorm,
  nn,
  noGrad,
  ones,
  optim,
  randint,
  randn,
  scaledDotProductAttention,
  type Tensor,
} from '../../lib/index.js';
import { atPlace, attentionInExact, placesOf } from './attention-sample.js';
import { commonOps } from './common-ops.js';
import { linearMakers } from './linear-work.js';
import type { Job } from './rows.js';
import { autocast, trainingMakers } from './training-work.js';

/** A sample and its reference. */
export type Pair = readonly [got: Tensor, wanted: Tensor];

/** The work of a row, prepared once. */
export interface Work {
  /** Runs the n-th call; the operand sets take turns. */
  call(n: number): unknown;
  /** Samples of the results of a call. */
  sample?(): readonly Pair[];
}

const SAMPLE = 4;
/** Rows are measured on the GPU; tests check the samples on the CPU. */
type Where = 'cuda' | 'cpu';
const device: Where = 'cuda';
const dtypes: Readonly<Record<Job['dtype'], DType>> = { bfloat16, float32 };
const exact = (t: Tensor): Tensor => t.detach().to('cpu').to(float64);
const head = (t: Tensor, rows = SAMPLE): Tensor => t.narrow(0, 0, rows);
const gradOf = (
  outputs: readonly Tensor[],
  inputs: Tensor[],
  gradients: readonly Tensor[],
): readonly Tensor[] =>
  autograd.grad([...outputs], inputs, {
    gradOutputs: [...gradients],
    retainGraph: true,
  }) as Tensor[];

/** Prepares a row; `make` creates random operands on the device `on`. */
type Maker = (job: Job, make: (shape: readonly number[]) => Tensor, on: Where) => Work;

const matmul =
  (
    x: (t: Tensor) => Tensor,
    w: (t: Tensor) => Tensor,
    xShape: (m: number, k: number) => number[],
    wShape: (n: number, k: number) => number[],
  ): Maker =>
  ({ shape, rotate = 1 }, make) => {
    const [m, n, k] = shape as [number, number, number];
    const sets = Array.from(
      { length: rotate },
      () => [make(xShape(m, k)), make(wShape(n, k))] as const,
    );
    const product = ([a, b]: readonly [Tensor, Tensor]): Tensor => x(a).matmul(w(b));
    return {
      call: (i) => product(sets[i % rotate] as (typeof sets)[0]),
      sample: () => {
        const [a, b] = sets[0] as (typeof sets)[0];
        const rows = Math.min(SAMPLE, m);
        return [[head(product([a, b]), rows), exact(head(x(a), rows)).matmul(exact(w(b)))]];
      },
    };
  };

const same = (t: Tensor): Tensor => t;
const turned = (t: Tensor): Tensor => t.t();

/**
 * A row-wise function, or its gradient with respect to the first operand and the shared ones.
 * Samples are of the first result.
 */
function rowwise(
  operands: (
    job: Job,
    make: (shape: readonly number[]) => Tensor,
  ) => { perRow: Tensor[]; shared: Tensor[] },
  fn: (perRow: Tensor[], shared: Tensor[]) => readonly [Tensor, ...Tensor[]],
): { forward: Maker; backward: Maker } {
  const forward: Maker = (job, make) => {
    const sets = Array.from({ length: job.rotate ?? 1 }, () => operands(job, make));
    const [{ perRow, shared }] = sets as [(typeof sets)[0]];
    return {
      call: (i) => {
        const set = sets[i % sets.length] as (typeof sets)[0];
        return fn(set.perRow, set.shared);
      },
      sample: () => {
        const rows = perRow.map((t) => exact(head(t)));
        return [[head(fn(perRow, shared)[0]), fn(rows, shared.map(exact))[0]]];
      },
    };
  };
  const backward: Maker = (job, make) => {
    const { perRow, shared } = operands(job, make);
    const inputs = [...perRow.slice(0, 1), ...shared].map((t) => t.requiresGrad_());
    const outputs = fn(perRow, shared);
    const gradients = outputs.map((output) => make(output.shape));
    const inExact = (): Tensor => {
      const [rows, others] = [perRow.map((t) => exact(head(t)).requiresGrad_()), shared.map(exact)];
      const few = gradients.map((gradient) => exact(head(gradient)));
      return gradOf(fn(rows, others), [rows[0] as Tensor], few)[0] as Tensor;
    };
    return {
      call: () => gradOf(outputs, inputs, gradients),
      sample: () => [[head(gradOf(outputs, inputs, gradients)[0] as Tensor), inExact()]],
    };
  };
  return { forward, backward };
}

const norm = rowwise(
  ({ shape }, make) => ({
    perRow: [make(shape)],
    shared: [make(shape.slice(1)), make(shape.slice(1))],
  }),
  ([x], [gain, bias]) => [layerNorm(x as Tensor, (x as Tensor).shape.slice(1), gain, bias)],
);
const rmsOfSum = rowwise(
  ({ shape }, make) => ({ perRow: [make(shape), make(shape)], shared: [make(shape.slice(1))] }),
  ([x, residual], [gain]) =>
    // the sum goes on as the next residual
    addRmsNorm(x as Tensor, residual as Tensor, (x as Tensor).shape.slice(1), gain),
);
const soft = rowwise(
  ({ shape }, make) => ({ perRow: [make(shape)], shared: [] }),
  ([x]) => [(x as Tensor).softmax(-1)],
);

type Run = (on: Where, fn: () => Tensor) => Tensor;

const crossEntropyAndGradient =
  (forward: Run): Maker =>
  ({ shape }, make, on) => {
    const [rows, classes] = shape as [number, number];
    const logits = make(shape).requiresGrad_();
    const targets = randint(0, classes, [rows], { device: on });
    const loss = (): Tensor => crossEntropy(logits, targets);
    const gradient = (): Tensor => autograd.grad(forward(on, loss), [logits])[0] as Tensor;
    const inExact = (): Tensor => {
      const few = exact(head(logits)).requiresGrad_();
      return (
        autograd.grad(crossEntropy(few, head(targets).to('cpu'), { reduction: 'sum' }), [
          few,
        ])[0] as Tensor
      ).div(rows);
    };
    return { call: gradient, sample: () => [[head(gradient()), inExact()]] };
  };

/** The tensors of GPT-2 with 124 million parameters. */
function gpt2Shapes(layers: number, d: number): number[][] {
  const block = [
    [d],
    [d],
    [3 * d, d],
    [3 * d],
    [d, d],
    [d],
    [d],
    [d],
    [4 * d, d],
    [4 * d],
    [d, 4 * d],
    [d],
  ];
  return [[50257, d], [1024, d], ...Array.from({ length: layers }, () => block).flat(), [d], [d]];
}

function adamw(shapes: readonly number[][], make: (shape: readonly number[]) => Tensor): Work {
  const [lr, weightDecay, eps] = [1e-3, 0.01, 1e-8];
  const params = shapes.map((shape) => new nn.Parameter(make(shape)));
  for (const p of params) p.grad = make(p.shape);
  const optimizer = new optim.AdamW(params, { lr, weightDecay, eps });
  const [first] = params as [nn.Parameter];
  return {
    call: () => optimizer.step(),
    sample: () => {
      const few = (t: Tensor): Tensor => exact(t.detach().flatten().narrow(0, 0, 64));
      const [p, g] = [few(first), few(first.grad as Tensor)];
      optimizer.step();
      return [[few(first), p.mul(1 - lr * weightDecay).sub(g.div(g.abs().add(eps)).mul(lr))]];
    },
  };
}

const embeddingBackward: Maker = ({ shape }, make, on) => {
  const [words, width, tokens] = shape as [number, number, number];
  const table = make([words, width]).requiresGrad_();
  const ids = randint(0, words, [tokens], { device: on });
  const output = embedding(ids, table);
  const gradient = make([tokens, width]);
  const backward = (): Tensor => gradOf([output], [table], [gradient])[0] as Tensor;
  const inExact = (): Tensor => {
    const one = exact(ids.eq(head(ids, 1))).unsqueeze(0);
    return one.matmul(exact(gradient));
  };
  return { call: backward, sample: () => [[backward().indexSelect(0, head(ids, 1)), inExact()]] };
};

/** Causal attention, with or without a mask. With dropout there are no samples. */
function attention(isBackward: boolean): Maker {
  return ({ shape, scores, keyHeads }, make, on) => {
    const [batch, heads, length, depth] = shape as [number, number, number, number];
    const keys = [batch, keyHeads ?? heads, length, depth];
    const operands = [make(shape), make(keys), make(keys)].map((t) =>
      isBackward ? t.requiresGrad_() : t,
    ) as [Tensor, Tensor, Tensor];
    const [q, k, v] = operands;
    const gradient = make(shape);
    const mask =
      scores === 'masked'
        ? ones([length, length], { device: on })
            .tril()
            .to(bool)
            .expand(batch, 1, length, length)
            .contiguous()
        : undefined;
    const isDropped = scores === 'causal with dropout';
    const run = (): Tensor =>
      scaledDotProductAttention(q, k, v, {
        isCausal: mask === undefined,
        attnMask: mask,
        dropoutP: isDropped ? 0.1 : 0,
        enableGqa: true,
      });
    const output = isBackward ? run() : null;
    const call = (): Tensor =>
      output === null ? run() : (gradOf([output], operands, [gradient])[0] as Tensor);
    const sample = (): readonly Pair[] => {
      const result = call();
      const given = { q, k, v, ...(mask === undefined ? {} : { mask }) };
      return placesOf([batch, heads, length]).map((place) => [
        atPlace(result, place),
        attentionInExact(given, place, isBackward ? gradient : undefined),
      ]);
    };
    return { call, ...(isDropped ? {} : { sample }) };
  };
}

const small = (fn: (a: Tensor) => unknown): Maker => {
  return (_job, _make, on) => {
    const a = ones([8, 8], { device: on });
    return { call: () => fn(a) };
  };
};

/** Sum and gradient of small operands, to measure host time. */
const backwardOfSum: Maker = (job, _make, on) => {
  const x = ones([8], { device: job.device ?? on, requiresGrad: true });
  return {
    call: () => {
      x.mul(2).add(1).sum().backward();
      x.grad = null;
    },
  };
};

const makers: Readonly<Record<string, Maker>> = {
  copy: ({ shape }, make) => {
    const x = make(shape);
    return { call: () => x.clone() };
  },
  matmul_nt: matmul(
    same,
    turned,
    (m, k) => [m, k],
    (n, k) => [n, k],
  ),
  matmul_nn: matmul(
    same,
    same,
    (m, k) => [m, k],
    (n, k) => [k, n],
  ),
  matmul_tn: matmul(
    turned,
    same,
    (m, k) => [k, m],
    (n, k) => [k, n],
  ),
  layer_norm: norm.forward,
  layer_norm_backward: norm.backward,
  rms_norm_of_a_sum: rmsOfSum.forward,
  rms_norm_of_a_sum_backward: rmsOfSum.backward,
  softmax: soft.forward,
  cross_entropy_and_gradient: crossEntropyAndGradient((_, fn) => fn()),
  training_cross_entropy: crossEntropyAndGradient(autocast),
  adamw: ({ shape: [count = 1, ...shape] }, make) =>
    adamw(
      Array.from({ length: count }, () => shape),
      make,
    ),
  adamw_gpt2: ({ shape }, make) => adamw(gpt2Shapes(shape[0] as number, shape[1] as number), make),
  transpose: ({ shape }, make) => {
    const x = make(shape);
    const call = (): Tensor => x.t().contiguous();
    return { call, sample: () => [[head(call()), exact(x.narrow(1, 0, SAMPLE)).t()]] };
  },
  embedding_backward: embeddingBackward,
  cast: ({ shape }, make) => {
    const x = make(shape);
    return {
      call: () => x.to(bfloat16),
      sample: () => [[head(x.to(bfloat16), 1000), exact(head(x, 1000))]],
    };
  },
  attention: attention(false),
  attention_backward: attention(true),
  add: small((a) => a.add(a)),
  mm: small((a) => a.mm(a)),
  layer_norm_host: small((a) => layerNorm(a, [8])),
  backward_of_a_sum: backwardOfSum,
};

/** The names of all ops. */
export const ops: readonly string[] = [
  ...Object.keys(makers),
  ...Object.keys(linearMakers),
  ...Object.keys(trainingMakers),
  ...Object.keys(commonOps),
];

/** Prepares the work of a row. @throws Error if the op is unknown */
export function prepare(job: Job, on: Where = device): Work {
  const make = (shape: readonly number[]): Tensor =>
    noGrad(() => randn([...shape], { device: on, dtype: dtypes[job.dtype] }));
  const simple = commonOps[job.op];
  if (simple !== undefined) return { call: simple(job.shape, make) };
  const linear = linearMakers[job.op];
  if (linear !== undefined) return linear(job, make, exact);
  const training = trainingMakers[job.op];
  if (training !== undefined) return training(job, make, exact, on);
  const maker = makers[job.host && job.op === 'layer_norm' ? 'layer_norm_host' : job.op];
  if (maker === undefined) throw new Error(`no work is called ${job.op}`);
  return maker(job, make, on);
}
