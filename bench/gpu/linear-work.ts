/** Our implementation of the rows of linear layers: each pass as autocast and autograd run it. */
import { amp, autograd, bfloat16, nn, type Tensor } from '../../lib/index.js';
import type { Job } from './rows.js';

/** A layer's operands: its input and the gradient of its output in bfloat16, its weight in float32. */
interface Operands {
  readonly x: Tensor;
  readonly w: Tensor;
  readonly gradient: Tensor;
}

export type Make = (shape: readonly number[]) => Tensor;
/** Copies to float64 on the CPU. */
export type Exact = (t: Tensor) => Tensor;
export interface SampledWork {
  call(n: number): unknown;
  sample(): readonly (readonly [got: Tensor, wanted: Tensor])[];
}

const SAMPLE = 4;
const few = (t: Tensor): Tensor => t.narrow(0, 0, SAMPLE);

/** The operands in turns, and `of`, which prepares the pass of one set. */
function pass(
  { shape, rotate = 1 }: Job,
  make: Make,
  prepare: (set: Operands) => () => Tensor,
  wanted: (set: Operands) => Tensor,
): SampledWork {
  const [tokens, outputs, inputs] = shape as [number, number, number];
  const sets = Array.from({ length: rotate }, () => ({
    x: make([tokens, inputs]).requiresGrad_(),
    w: new nn.Parameter(make([outputs, inputs]).float()),
    gradient: make([tokens, outputs]),
  }));
  const calls = sets.map(prepare);
  return {
    call: (n) => (calls[n % rotate] as () => Tensor)(),
    sample: () => [[few((calls[0] as () => Tensor)()), wanted(sets[0] as Operands)]],
  };
}

/** The output as autocast computes it; the converted weight is kept for the gradients. */
const outputOf = ({ x, w }: Operands): Tensor =>
  amp.autocast({ deviceType: x.device.type === 'cuda' ? 'cuda' : 'cpu', dtype: bfloat16 }, () =>
    nn.functional.linear(x, w),
  );

const gradientOf =
  (which: 'x' | 'w') =>
  (set: Operands): (() => Tensor) => {
    const output = outputOf(set);
    const options = { gradOutputs: [set.gradient], retainGraph: true };
    return () => autograd.grad([output], [set[which]], options)[0] as Tensor;
  };

/** The passes by the ops of their rows. `exact` of weights rounds as autocast does. */
export const linearMakers: Readonly<
  Record<string, (job: Job, make: Make, exact: Exact) => SampledWork>
> = {
  linear: (job, make, exact) =>
    pass(
      job,
      make,
      ({ x, w }) => {
        const [input, weight] = [x.detach(), w.detach().to(bfloat16)];
        return () => nn.functional.linear(input, weight);
      },
      ({ x, w }) => exact(few(x)).matmul(exact(w.to(bfloat16)).t()),
    ),
  linear_input_gradient: (job, make, exact) =>
    pass(job, make, gradientOf('x'), ({ w, gradient }) =>
      exact(few(gradient)).matmul(exact(w.to(bfloat16))),
    ),
  linear_weight_gradient: (job, make, exact) =>
    pass(job, make, gradientOf('w'), ({ x, gradient }) =>
      exact(gradient.narrow(1, 0, SAMPLE))
        .t()
        .matmul(exact(x)),
    ),
};
