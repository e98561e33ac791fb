/**
 * A GPT small enough for every test, and its parallel plans. B batch, T time, D features, H heads,
 * V vocabulary.
 */
import {
  ColwiseParallel,
  type ParallelizePlan,
  PrepareModuleInput,
  PrepareModuleOutput,
  Replicate,
  RowwiseParallel,
  SequenceParallel,
  Shard,
} from '../../lib/distributed.js';
import {
  float64,
  int64,
  manualSeed,
  nn,
  randint,
  scaledDotProductAttention,
  type Tensor,
} from '../../lib/index.js';

const dtype = float64;
const [VOCABULARY, TIME, FEATURES, HEADS] = [11, 6, 8, 4];

class Attention extends nn.Module {
  wq = new nn.Linear(FEATURES, FEATURES, { dtype });
  wk = new nn.Linear(FEATURES, FEATURES, { dtype });
  wv = new nn.Linear(FEATURES, FEATURES, { dtype });
  wo = new nn.Linear(FEATURES, FEATURES, { dtype });

  forward(x: Tensor): Tensor {
    const [batch, time] = x.shape as [number, number];
    const heads = (t: Tensor): Tensor =>
      // [B, H, T, D/H]: the rank's heads
      t.reshape(batch, time, -1, FEATURES / HEADS).transpose(1, 2);
    const out = scaledDotProductAttention(heads(this.wq(x)), heads(this.wk(x)), heads(this.wv(x)), {
      isCausal: true,
    });
    return this.wo(out.transpose(1, 2).flatten(2));
  }
}

class FeedForward extends nn.Module {
  up = new nn.Linear(FEATURES, 4 * FEATURES, { dtype });
  down = new nn.Linear(4 * FEATURES, FEATURES, { dtype });

  forward(x: Tensor): Tensor {
    return this.down(this.up(x).gelu());
  }
}

class Block extends nn.Module {
  norm1 = new nn.LayerNorm(FEATURES, { dtype });
  attention = new Attention();
  norm2 = new nn.LayerNorm(FEATURES, { dtype });
  mlp = new FeedForward();

  forward(x: Tensor): Tensor {
    const attended = x.add(this.attention(this.norm1(x)));
    return attended.add(this.mlp(this.norm2(attended)));
  }
}

/** Tokens `[B, T]` to logits `[B, T, V]`; the output layer has the weight of the embedding. */
export class SmallGpt extends nn.Module {
  tokens = new nn.Embedding(VOCABULARY, FEATURES, { dtype });
  positions = new nn.Embedding(TIME, FEATURES, { dtype });
  blocks = new nn.ModuleList([new Block(), new Block()]);
  norm = new nn.LayerNorm(FEATURES, { dtype });
  head = new nn.Linear(FEATURES, VOCABULARY, { bias: false, dtype });

  constructor() {
    super();
    this.head.weight = this.tokens.weight;
  }

  /** The same values on every rank. */
  static seeded(): SmallGpt {
    manualSeed(21);
    return new SmallGpt();
  }

  forward(ids: Tensor): Tensor {
    let x = this.tokens(ids).add(this.positions(this.places(ids)));
    for (const block of this.blocks) x = block(x);
    return this.head(this.norm(x));
  }

  /** 0, 1, 2, …, distributed if the tokens are. */
  private places(ids: Tensor): Tensor {
    return ids.newOnes([TIME]).cumsum(0).sub(1);
  }
}

/** Inputs and targets `[batch, T]` of a step, the same on every rank. */
export function batchOf(step: number, batch: number): [inputs: Tensor, targets: Tensor] {
  manualSeed(100 + step);
  return [
    randint(0, VOCABULARY, [batch, TIME], { dtype: int64 }),
    randint(0, VOCABULARY, [batch, TIME], { dtype: int64 }),
  ];
}

/** Rows of logits and targets for a loss. */
export const asRows = (logits: Tensor, targets: Tensor): [Tensor, Tensor] => [
  logits.flatten(0, 1),
  targets.flatten(),
];

const copies = (): PrepareModuleInput =>
  PrepareModuleInput({ inputLayouts: Replicate(), desiredInputLayouts: Replicate() });
const gathered = (): PrepareModuleInput =>
  PrepareModuleInput({ inputLayouts: Shard(1), desiredInputLayouts: Replicate() });

/**
 * Heads, features between the two products, and the vocabulary are shared; all else is replicated.
 */
export const tensorParallelPlan = (): ParallelizePlan => ({
  tokens: RowwiseParallel(),
  'blocks.*.attention': copies(),
  'blocks.*.attention.w[qkv]': ColwiseParallel(),
  'blocks.*.attention.wo': RowwiseParallel(),
  'blocks.*.mlp.up': ColwiseParallel(),
  'blocks.*.mlp.down': RowwiseParallel(),
  head: ColwiseParallel({ outputLayouts: Replicate() }),
});

/** Between the layers each rank has a part of the sequence; the logits stay cut by classes. */
export const sequenceParallelPlan = (): ParallelizePlan => ({
  tokens: RowwiseParallel({ outputLayouts: Shard(1) }),
  positions: PrepareModuleOutput({ outputLayouts: Replicate(), desiredOutputLayouts: Shard(0) }),
  'blocks.*.norm*': SequenceParallel(),
  'blocks.*.attention': gathered(),
  'blocks.*.attention.w[qkv]': ColwiseParallel(),
  'blocks.*.attention.wo': RowwiseParallel({ outputLayouts: Shard(1) }),
  'blocks.*.mlp': gathered(),
  'blocks.*.mlp.up': ColwiseParallel(),
  'blocks.*.mlp.down': RowwiseParallel({ outputLayouts: Shard(1) }),
  norm: SequenceParallel(),
  head: ColwiseParallel({ inputLayouts: Shard(1), useLocalOutput: false }),
});
