/** Losses as modules; each has the options of the function of its name. */
import { checkNumber, checkOneOf, type NumberRule, optionsOf, unexpected } from '../core/options.js';
import type { Tensor } from '../core/tensor.js';
import {
  binaryCrossEntropyWithLogits,
  type CrossEntropyOptions,
  crossEntropy,
  type LogitsLossOptions,
  type LossOptions,
  l1Loss,
  mseLoss,
  type NllLossOptions,
  nllLoss,
} from '../ops/loss.js';
import {
  type BinaryCrossEntropyOptions,
  binaryCrossEntropy,
  cosineEmbeddingLoss,
  huberLoss,
  type KlDivOptions,
  klDiv,
  type MarginOptions,
  marginRankingLoss,
  smoothL1Loss,
  tripletMarginLoss,
} from '../ops/loss-composites.js';
import { Module } from './module.js';

type Pair = [input: Tensor, target: Tensor];

const reductions = ['none', 'mean', 'sum'];

/** Bounds of the numbers among the options, as in PyTorch. */
const numberRules: Readonly<Record<string, NumberRule>> = {
  labelSmoothing: { from: 0, to: 1 },
  ignoreIndex: { whole: true },
  beta: { from: 0 },
  delta: { above: 0 },
  margin: {},
  eps: {},
  p: {},
};

/** A loss of an input and a target, with options that hold no tensors. */
abstract class Loss<O extends object, Args extends readonly unknown[] = Pair> extends Module<Args> {
  readonly options: O;

  constructor(options: O = {} as O) {
    super();
    this.options = options;
    this.checkOptions(options as Readonly<Record<string, unknown>>);
  }

  /** Checks options here already, where they are written, and not only at the first call. */
  private checkOptions(options: Readonly<Record<string, unknown>>): void {
    const op = this.constructor.name;
    if (typeof options !== 'object' || options === null) throw unexpected(op, 'options', 'an object', options);
    const allowed = this instanceof KLDivLoss ? [...reductions, 'batchmean'] : reductions;
    for (const [name, value] of Object.entries(options)) {
      if (value === undefined) continue;
      if (name === 'reduction') checkOneOf(op, name, value, allowed);
      const rule = this instanceof TripletMarginLoss && name === 'margin' ? { above: 0 } : numberRules[name];
      if (rule !== undefined) checkNumber(op, name, value, rule);
    }
  }
}

/** Cross entropy of logits and class indices; see `crossEntropy`. */
export class CrossEntropyLoss extends Loss<Omit<CrossEntropyOptions, 'weight'>> {
  declare weight: Tensor | null;

  constructor(options: CrossEntropyOptions = {}) {
    const { weight = null, ...rest } = optionsOf('CrossEntropyLoss', options, 'weight ignoreIndex reduction labelSmoothing');
    super(rest);
    this.registerBuffer('weight', weight);
  }

  forward(input: Tensor, target: Tensor): Tensor {
    return crossEntropy(input, target, { ...this.options, weight: this.weight });
  }
}

/** Negative log likelihood of log probabilities and class indices; see `nllLoss`. */
export class NLLLoss extends Loss<Omit<NllLossOptions, 'weight'>> {
  declare weight: Tensor | null;

  constructor(options: NllLossOptions = {}) {
    const { weight = null, ...rest } = optionsOf('NLLLoss', options, 'weight ignoreIndex reduction');
    super(rest);
    this.registerBuffer('weight', weight);
  }

  forward(input: Tensor, target: Tensor): Tensor {
    return nllLoss(input, target, { ...this.options, weight: this.weight });
  }
}

/** Binary cross entropy of probabilities; see `binaryCrossEntropy`. */
export class BCELoss extends Loss<LossOptions> {
  declare weight: Tensor | null;

  constructor(options: BinaryCrossEntropyOptions = {}) {
    const { weight = null, ...rest } = optionsOf('BCELoss', options, 'weight reduction');
    super(rest);
    this.registerBuffer('weight', weight);
  }

  forward(input: Tensor, target: Tensor): Tensor {
    return binaryCrossEntropy(input, target, { ...this.options, weight: this.weight });
  }
}

/** Binary cross entropy of logits; see `binaryCrossEntropyWithLogits`. */
export class BCEWithLogitsLoss extends Loss<LossOptions> {
  declare weight: Tensor | null;
  declare pos_weight: Tensor | null;

  constructor(options: LogitsLossOptions = {}) {
    const { weight = null, posWeight = null, ...rest } = optionsOf('BCEWithLogitsLoss', options, 'weight posWeight reduction');
    super(rest);
    this.registerBuffer('weight', weight);
    this.registerBuffer('pos_weight', posWeight);
  }

  forward(input: Tensor, target: Tensor): Tensor {
    return binaryCrossEntropyWithLogits(input, target, { ...this.options, weight: this.weight, posWeight: this.pos_weight });
  }
}

/** Mean of squared differences; see `mseLoss`. */
export class MSELoss extends Loss<LossOptions> {
  forward(input: Tensor, target: Tensor): Tensor {
    return mseLoss(input, target, this.options);
  }
}

/** Mean of absolute differences; see `l1Loss`. */
export class L1Loss extends Loss<LossOptions> {
  forward(input: Tensor, target: Tensor): Tensor {
    return l1Loss(input, target, this.options);
  }
}

/** Squares below `beta`, absolute differences above; see `smoothL1Loss`. */
export class SmoothL1Loss extends Loss<LossOptions & { beta?: number }> {
  forward(input: Tensor, target: Tensor): Tensor {
    return smoothL1Loss(input, target, this.options);
  }
}

/** Half squares below `delta`, delta times the rest above; see `huberLoss`. */
export class HuberLoss extends Loss<LossOptions & { delta?: number }> {
  forward(input: Tensor, target: Tensor): Tensor {
    return huberLoss(input, target, this.options);
  }
}

/** The Kullback-Leibler divergence of log probabilities from a target distribution; see `klDiv`. */
export class KLDivLoss extends Loss<KlDivOptions> {
  forward(input: Tensor, target: Tensor): Tensor {
    return klDiv(input, target, this.options);
  }
}

/** Which of two should be larger; see `marginRankingLoss`. */
export class MarginRankingLoss extends Loss<MarginOptions, [input1: Tensor, input2: Tensor, target: Tensor]> {
  forward(input1: Tensor, input2: Tensor, target: Tensor): Tensor {
    return marginRankingLoss(input1, input2, target, this.options);
  }
}

/** Whether two vectors should point the same way; see `cosineEmbeddingLoss`. */
export class CosineEmbeddingLoss extends Loss<MarginOptions, [input1: Tensor, input2: Tensor, target: Tensor]> {
  forward(input1: Tensor, input2: Tensor, target: Tensor): Tensor {
    return cosineEmbeddingLoss(input1, input2, target, this.options);
  }
}

/** An anchor nearer to the positive than to the negative; see `tripletMarginLoss`. */
export class TripletMarginLoss extends Loss<MarginOptions & { p?: number; eps?: number }, [anchor: Tensor, positive: Tensor, negative: Tensor]> {
  forward(anchor: Tensor, positive: Tensor, negative: Tensor): Tensor {
    return tripletMarginLoss(anchor, positive, negative, this.options);
  }
}
