/** Losses as modules. Each has the options of the function in `nn.functional` that it calls. */
import { checkNumber, checkOneOf, type NumberRule } from '../core/options.js';
import { type ArgumentsOf, defineArguments } from '../core/signature.js';
import type { Tensor } from '../core/tensor.js';
import {
  type CrossEntropyOptions,
  crossEntropy,
  type NllLossOptions,
  nllLoss,
} from '../ops/cross-entropy.js';
import {
  binaryCrossEntropy,
  binaryCrossEntropyWithLogits,
  huberLoss,
  type KlDivOptions,
  klDiv,
  l1Loss,
  mseLoss,
  smoothL1Loss,
} from '../ops/loss.js';
import type { LossOptions, LossReduction } from '../ops/loss-checks.js';
import {
  cosineEmbeddingLoss,
  type MarginOptions,
  marginRankingLoss,
  tripletMarginLoss,
} from '../ops/margin-losses.js';
import { Module } from './module.js';

type Pair = [input: Tensor, target: Tensor];

const reductions = ['none', 'mean', 'sum'];

/** Bounds of numeric options, as in PyTorch. */
const numberRules: Readonly<Record<string, NumberRule>> = {
  labelSmoothing: { from: 0, to: 1 },
  ignoreIndex: { whole: true },
  beta: { from: 0 },
  delta: { above: 0 },
  margin: {},
  eps: {},
  p: {},
};

/** Base of losses. Its options hold no tensors: those are buffers. */
abstract class Loss<O extends object, Args extends readonly unknown[] = Pair> extends Module<Args> {
  readonly options: O;

  constructor(name: string, options: O) {
    super();
    this.options = options;
    checkOptions(name, options as Readonly<Record<string, unknown>>);
  }
}

/** Checks options in the constructor, so that an error points there and not to the first call. */
function checkOptions(op: string, options: Readonly<Record<string, unknown>>): void {
  const allowed = op === 'KLDivLoss' ? [...reductions, 'batchmean'] : reductions;
  for (const [name, value] of Object.entries(options)) {
    if (value === undefined) continue;
    if (name === 'reduction') checkOneOf(op, name, value, allowed);
    const rule = op === 'TripletMarginLoss' && name === 'margin' ? { above: 0 } : numberRules[name];
    if (rule !== undefined) checkNumber(op, name, value, rule);
  }
}

const crossEntropyArguments = defineArguments(
  'CrossEntropyLoss(weight, *, ignoreIndex, reduction, labelSmoothing)',
  (weight: Tensor | null = null, options: Omit<CrossEntropyOptions, 'weight'> = {}) => ({
    weight,
    options,
  }),
);

/** Cross entropy of logits and class indices; see `crossEntropy`. */
export class CrossEntropyLoss extends Loss<Omit<CrossEntropyOptions, 'weight'>> {
  /** The weight of each class. */
  declare weight: Tensor | null;

  constructor(...args: ArgumentsOf<typeof crossEntropyArguments>) {
    const { weight, options } = crossEntropyArguments(...args);
    super('CrossEntropyLoss', options);
    this.registerBuffer('weight', weight);
  }

  forward(input: Tensor, target: Tensor): Tensor {
    return crossEntropy(input, target, { ...this.options, weight: this.weight });
  }
}

const nllArguments = defineArguments(
  'NLLLoss(weight, *, ignoreIndex, reduction)',
  (weight: Tensor | null = null, options: Omit<NllLossOptions, 'weight'> = {}) => ({
    weight,
    options,
  }),
);

/** Negative log likelihood of log probabilities and class indices; see `nllLoss`. */
export class NLLLoss extends Loss<Omit<NllLossOptions, 'weight'>> {
  /** The weight of each class. */
  declare weight: Tensor | null;

  constructor(...args: ArgumentsOf<typeof nllArguments>) {
    const { weight, options } = nllArguments(...args);
    super('NLLLoss', options);
    this.registerBuffer('weight', weight);
  }

  forward(input: Tensor, target: Tensor): Tensor {
    return nllLoss(input, target, { ...this.options, weight: this.weight });
  }
}

const bceArguments = defineArguments(
  'BCELoss(weight, *, reduction)',
  (weight: Tensor | null = null, options: LossOptions = {}) => ({ weight, options }),
);

/** Binary cross entropy of probabilities; see `binaryCrossEntropy`. */
export class BCELoss extends Loss<LossOptions> {
  /** The weight of each element. */
  declare weight: Tensor | null;

  constructor(...args: ArgumentsOf<typeof bceArguments>) {
    const { weight, options } = bceArguments(...args);
    super('BCELoss', options);
    this.registerBuffer('weight', weight);
  }

  forward(input: Tensor, target: Tensor): Tensor {
    return binaryCrossEntropy(input, target, { ...this.options, weight: this.weight });
  }
}

const bceWithLogitsArguments = defineArguments(
  'BCEWithLogitsLoss(weight, *, reduction, posWeight)',
  (weight: Tensor | null = null, options: LossOptions & { posWeight?: Tensor | null } = {}) => ({
    weight,
    options,
  }),
);

/** Binary cross entropy of logits; see `binaryCrossEntropyWithLogits`. */
export class BCEWithLogitsLoss extends Loss<LossOptions> {
  /** The weight of each element. */
  declare weight: Tensor | null;
  /** The weight of positive examples of each class. */
  declare pos_weight: Tensor | null;

  constructor(...args: ArgumentsOf<typeof bceWithLogitsArguments>) {
    const { weight, options } = bceWithLogitsArguments(...args);
    const { posWeight = null, ...rest } = options;
    super('BCEWithLogitsLoss', rest);
    this.registerBuffer('weight', weight);
    this.registerBuffer('pos_weight', posWeight);
  }

  forward(input: Tensor, target: Tensor): Tensor {
    return binaryCrossEntropyWithLogits(input, target, {
      ...this.options,
      weight: this.weight,
      posWeight: this.pos_weight,
    });
  }
}

const mseArguments = defineArguments(
  'MSELoss(*, reduction)',
  (options: LossOptions = {}) => options,
);

/** Mean of squared differences; see `mseLoss`. */
export class MSELoss extends Loss<LossOptions> {
  constructor(...args: ArgumentsOf<typeof mseArguments>) {
    super('MSELoss', mseArguments(...args));
  }

  forward(input: Tensor, target: Tensor): Tensor {
    return mseLoss(input, target, this.options);
  }
}

const l1Arguments = defineArguments('L1Loss(*, reduction)', (options: LossOptions = {}) => options);

/** Mean of absolute differences; see `l1Loss`. */
export class L1Loss extends Loss<LossOptions> {
  constructor(...args: ArgumentsOf<typeof l1Arguments>) {
    super('L1Loss', l1Arguments(...args));
  }

  forward(input: Tensor, target: Tensor): Tensor {
    return l1Loss(input, target, this.options);
  }
}

const smoothL1Arguments = defineArguments(
  'SmoothL1Loss(*, reduction, beta)',
  (options: LossOptions & { beta?: number } = {}) => options,
);

/** Squares below `beta`, absolute differences above; see `smoothL1Loss`. */
export class SmoothL1Loss extends Loss<LossOptions & { beta?: number }> {
  constructor(...args: ArgumentsOf<typeof smoothL1Arguments>) {
    super('SmoothL1Loss', smoothL1Arguments(...args));
  }

  forward(input: Tensor, target: Tensor): Tensor {
    return smoothL1Loss(input, target, this.options);
  }
}

const huberArguments = defineArguments(
  'HuberLoss(reduction, delta)',
  (reduction: LossReduction = 'mean', delta = 1) => ({ reduction, delta }),
);

/** Half squares below `delta`, delta times the rest above; see `huberLoss`. */
export class HuberLoss extends Loss<LossOptions & { delta?: number }> {
  constructor(...args: ArgumentsOf<typeof huberArguments>) {
    super('HuberLoss', huberArguments(...args));
  }

  forward(input: Tensor, target: Tensor): Tensor {
    return huberLoss(input, target, this.options);
  }
}

const klDivArguments = defineArguments(
  'KLDivLoss(*, reduction, logTarget)',
  (options: KlDivOptions = {}) => options,
);

/** The Kullback-Leibler divergence of log probabilities from a target distribution; see `klDiv`. */
export class KLDivLoss extends Loss<KlDivOptions> {
  constructor(...args: ArgumentsOf<typeof klDivArguments>) {
    super('KLDivLoss', klDivArguments(...args));
  }

  forward(input: Tensor, target: Tensor): Tensor {
    return klDiv(input, target, this.options);
  }
}

const marginRankingArguments = defineArguments(
  'MarginRankingLoss(margin, *, reduction)',
  (margin = 0, options: LossOptions = {}) => ({ margin, ...options }),
);

/** Ranking loss: which of two inputs should be larger; see `marginRankingLoss`. */
export class MarginRankingLoss extends Loss<
  MarginOptions,
  [input1: Tensor, input2: Tensor, target: Tensor]
> {
  constructor(...args: ArgumentsOf<typeof marginRankingArguments>) {
    super('MarginRankingLoss', marginRankingArguments(...args));
  }

  forward(input1: Tensor, input2: Tensor, target: Tensor): Tensor {
    return marginRankingLoss(input1, input2, target, this.options);
  }
}

const cosineEmbeddingArguments = defineArguments(
  'CosineEmbeddingLoss(margin, *, reduction)',
  (margin = 0, options: LossOptions = {}) => ({ margin, ...options }),
);

/** Loss of the cosine of two vectors that should be similar or not; see `cosineEmbeddingLoss`. */
export class CosineEmbeddingLoss extends Loss<
  MarginOptions,
  [input1: Tensor, input2: Tensor, target: Tensor]
> {
  constructor(...args: ArgumentsOf<typeof cosineEmbeddingArguments>) {
    super('CosineEmbeddingLoss', cosineEmbeddingArguments(...args));
  }

  forward(input1: Tensor, input2: Tensor, target: Tensor): Tensor {
    return cosineEmbeddingLoss(input1, input2, target, this.options);
  }
}

const tripletMarginArguments = defineArguments(
  'TripletMarginLoss(margin, p, eps, *, reduction)',
  (margin = 1, p = 2, eps = 1e-6, options: LossOptions = {}) => ({
    margin,
    p,
    eps,
    ...options,
  }),
);

/**
 * Loss of an anchor that should be nearer to a positive than to a negative; see
 * `tripletMarginLoss`.
 */
export class TripletMarginLoss extends Loss<
  MarginOptions & { p?: number; eps?: number },
  [anchor: Tensor, positive: Tensor, negative: Tensor]
> {
  constructor(...args: ArgumentsOf<typeof tripletMarginArguments>) {
    super('TripletMarginLoss', tripletMarginArguments(...args));
  }

  forward(anchor: Tensor, positive: Tensor, negative: Tensor): Tensor {
    return tripletMarginLoss(anchor, positive, negative, this.options);
  }
}
