/**
 * Our implementation of the rows of training: forward and backward in one call, under autocast, so
 * that operands and gradients have the dtypes and strides that they have in a step.
 */
import {
  amp,
  autograd,
  bfloat16,
  type DeviceName,
  layerNorm,
  nn,
  optim,
  randint,
  rmsNorm,
  scaledDotProductAttention,
  type Tensor,
} from '../../lib/index.js';
import { Gpt } from '../gpt.js';
import type { Exact, Make, SampledWork } from './linear-work.js';
import type { Job } from './rows.js';

type Sizes = readonly number[];
type TrainingMaker = (job: Job, make: Make, exact: Exact, on: 'cuda' | 'cpu') => SampledWork;

/** A part of a step: its operands of each row or sequence, and its parameters. */
interface Part {
  readonly operands: (shape: Sizes, make: Make) => Tensor[];
  readonly parameters?: (shape: Sizes, make: Make) => Tensor[];
  readonly compute: (operands: readonly Tensor[], parameters: readonly Tensor[]) => Tensor;
}

/** Runs it in mixed precision, as a training step does. */
export const autocast = <T>(on: DeviceName, fn: () => T): T =>
  amp.autocast({ deviceType: on === 'cpu' ? 'cpu' : 'cuda', dtype: bfloat16 }, fn);

/** Forward and backward of a part; the sample is the gradient of its first operand. */
const partOf =
  ({ operands, parameters, compute }: Part): TrainingMaker =>
  ({ shape, rotate = 1 }, make, exact, on) => {
    const sets = Array.from({ length: rotate }, () => ({
      own: operands(shape, make).map((t) => t.requiresGrad_()),
      shared: (parameters?.(shape, make) ?? []).map((t) => new nn.Parameter(t)),
    }));
    const [first] = sets as [(typeof sets)[0]];
    const gradient = make(compute(first.own, first.shared).shape);
    const call = (n: number): Tensor => {
      const { own, shared } = sets[n % rotate] as (typeof sets)[0];
      const output = autocast(on, () => compute(own, shared));
      const options = { gradOutputs: [gradient] };
      return autograd.grad([output], [...own, ...shared], options)[0] as Tensor;
    };
    const sample = (): [Tensor, Tensor][] => {
      const own = first.own.map((t) => exact(t.narrow(0, 0, 1)).requiresGrad_());
      const output = compute(own, first.shared.map(exact));
      const options = { gradOutputs: [exact(gradient.narrow(0, 0, 1))] };
      const wanted = autograd.grad([output], [own[0] as Tensor], options)[0] as Tensor;
      return [[call(0).narrow(0, 0, 1), wanted]];
    };
    return { call, sample };
  };

/** The heads of attention's result beside each other again. */
const joined = (heads: Tensor): Tensor => heads.transpose(1, 2).flatten(2);

/** Queries, keys and values are views of one product, as in GPT. */
const attentionOfOne = partOf({
  operands: ([batch = 1, context = 1, heads = 1, depth = 1], make) => [
    make([batch, context, 3, heads, depth]),
  ],
  compute: ([qkv]) => {
    const [q, k, v] = (qkv as Tensor).permute([2, 0, 3, 1, 4]).unbind(0) as Tensor[];
    return joined(
      scaledDotProductAttention(q as Tensor, k as Tensor, v as Tensor, { isCausal: true }),
    );
  },
});

/** Queries and keys are results of the rotation, values a view of their product, as in Llama. */
const groupedAttention = partOf({
  operands: ([batch = 1, context = 1, heads = 1, depth = 1, keyHeads = 1], make) => [
    make([batch, heads, context, depth]),
    make([batch, keyHeads, context, depth]),
    make([batch, context, keyHeads, depth]),
  ],
  compute: ([q, k, v]) =>
    joined(
      scaledDotProductAttention(q as Tensor, k as Tensor, (v as Tensor).transpose(1, 2), {
        isCausal: true,
        enableGqa: true,
      }),
    ),
});

const { linear } = nn.functional;
/** A norm's result goes to a product, for which it is converted; here to a very small one. */
const FEW_OUTPUTS = 8;
const float32 = (make: Make, shape: Sizes): Tensor => make(shape).float();

/** The gradients of a backward pass through the model, with the strides that it gives them. */
const adamw: TrainingMaker = ({ shape }, _make, exact, on) => {
  const [vocabulary, width, heads, hidden, layers, context] = shape as [
    number,
    number,
    number,
    number,
    number,
    number,
  ];
  const [lr, weightDecay, eps] = [1e-3, 0.01, 1e-8];
  const model = new Gpt({ vocabulary, width, heads, hidden, layers, context }, on);
  const tokens = randint(0, vocabulary, [1, context], { device: on });
  autocast(on, () => model(tokens, tokens)).backward();
  const [first] = [...model.parameters()] as [nn.Parameter];
  const optimizer = new optim.AdamW(model.parameters(), { lr, weightDecay, eps });
  const few = (t: Tensor): Tensor => exact(t.detach().flatten().narrow(0, 0, 64));
  return {
    call: () => optimizer.step(),
    sample: () => {
      const [p, g] = [few(first), few(first.grad as Tensor)];
      optimizer.step();
      return [[few(first), p.mul(1 - lr * weightDecay).sub(g.div(g.abs().add(eps)).mul(lr))]];
    },
  };
};

/** The parts by the ops of their rows. */
export const trainingMakers: Readonly<Record<string, TrainingMaker>> = {
  training_gelu: partOf({
    operands: (shape, make) => [make(shape)],
    compute: ([x]) => nn.functional.gelu(x as Tensor, { approximate: 'tanh' }),
  }),
  training_swiglu: partOf({
    operands: (shape, make) => [make(shape), make(shape)],
    compute: ([gate, up]) => nn.functional.silu(gate as Tensor).mul(up as Tensor),
  }),
  training_layer_norm: partOf({
    operands: (shape, make) => [float32(make, shape)],
    parameters: ([, width = 1], make) => [
      float32(make, [FEW_OUTPUTS, width]),
      float32(make, [width]),
      float32(make, [width]),
    ],
    compute: ([x], [weight, gain, bias]) =>
      linear(layerNorm(x as Tensor, (gain as Tensor).shape, gain, bias), weight as Tensor),
  }),
  training_rms_norm: partOf({
    operands: (shape, make) => [float32(make, shape)],
    parameters: ([, width = 1], make) => [
      float32(make, [FEW_OUTPUTS, width]),
      float32(make, [width]),
    ],
    compute: ([x], [weight, gain]) =>
      linear(rmsNorm(x as Tensor, (gain as Tensor).shape, gain), weight as Tensor),
  }),
  training_attention: attentionOfOne,
  training_grouped_attention: groupedAttention,
  training_adamw: adamw,
};
