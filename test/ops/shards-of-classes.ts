/**
 * Cross entropy of shards of the classes, put together: what crossEntropyStatistics and
 * crossEntropyBackward give for each range of columns.
 */
import { dispatch } from '../../lib/core/dispatch.js';
import { type Op, opByName } from '../../lib/core/op.js';
import { wrapNumber } from '../../lib/core/tensor.js';
import { cat, float32, float64, stack, type Tensor, where } from '../../lib/index.js';

/** A loss of logits `[rows, classes]`. */
export interface Loss {
  readonly logits: Tensor;
  readonly target: Tensor;
  readonly weight: Tensor | null;
  readonly ignoreIndex: number;
  readonly labelSmoothing: number;
}

/** The losses and the gradient of the logits for the incoming gradients of the losses. */
export interface Result {
  readonly losses: Tensor;
  readonly gradient: Tensor;
}

function run(name: string, inputs: readonly (Tensor | null)[], params: object): Tensor[] {
  const absent = wrapNumber(0, float32, (inputs[0] as Tensor).device);
  return dispatch(
    opByName(name) as Op<object>,
    inputs.map((t) => t ?? absent),
    params,
  );
}

/** The lse and the score of logits of the classes from `firstClass` on. */
export function statisticsOf(loss: Loss, firstClass: number, classes: number): [Tensor, Tensor] {
  const { logits, target, weight, ignoreIndex, labelSmoothing } = loss;
  const params = { ignoreIndex, labelSmoothing, firstClass, classes, shards: 1 };
  return run('crossEntropyStatistics', [logits, target, weight], params) as [Tensor, Tensor];
}

/** Computes each shard by the kernels; `ends` are the ends of the shards, the last all classes. */
export function ofShards(loss: Loss, incoming: Tensor, ends: readonly number[]): Result {
  const { logits, target, weight, ignoreIndex, labelSmoothing } = loss;
  const classes = logits.shape[1] as number;
  const shards = ends.map((end, i) => {
    const firstClass = ends[i - 1] ?? 0;
    return { x: logits.narrow(1, firstClass, end - firstClass), firstClass };
  });
  const statistics = shards.map(({ x, firstClass }) =>
    statisticsOf({ ...loss, logits: x }, firstClass, classes),
  );
  const logs = cat(
    statistics.map(([lse]) => lse),
    1,
  );
  const lse = logs.logsumexp(1); // float64, as the scores
  const score = stack(statistics.map(([, own]) => own)).sum(0);
  const counted = target.ne(ignoreIndex);
  const label = where(counted, target, 0);
  const weights = weight?.to(lse.dtype) ?? lse.newOnes([classes]);
  const mass = weights
    .indexSelect(0, label)
    .mul(1 - labelSmoothing)
    .add(weights.mean().mul(labelSmoothing));
  const gradients = shards.map(({ x, firstClass }) => {
    const params = { ignoreIndex, labelSmoothing, firstClass, classes };
    return run(
      'crossEntropyBackward',
      [incoming, x, lse.to(incoming.dtype), target, weight],
      params,
    )[0] as Tensor;
  });
  return {
    losses: where(counted, mass.mul(lse).sub(score), 0).to(incoming.dtype),
    gradient: cat(gradients, 1),
  };
}

/** The same of all classes at once in float64, by other ops. */
export function ofAllClasses(loss: Loss, incoming: Tensor): Result {
  const { target, weight, ignoreIndex, labelSmoothing } = loss;
  const logits = loss.logits.detach().to(float64).requiresGrad_();
  const classes = logits.shape[1] as number;
  const counted = target.ne(ignoreIndex);
  const weights = weight?.to(float64) ?? logits.newOnes([classes]);
  const labels = where(counted, target, 0)
    .oneHot(classes)
    .to(float64)
    .mul(1 - labelSmoothing)
    .add(labelSmoothing / classes)
    .mul(weights);
  const terms = where(labels.eq(0), 0, logits.logSoftmax(1).mul(labels));
  const losses = where(counted, terms.sum(1).neg(), 0);
  losses.backward(incoming.to(float64));
  return { losses: losses.detach(), gradient: logits.grad as Tensor };
}
