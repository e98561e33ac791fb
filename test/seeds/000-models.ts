/**
 * The models of PyTorch's test/distributed/_composable/fsdp/test_fully_shard_compile.py, how they are
 * sharded, and what they get.
 */
import { fullyShard, initDeviceMesh } from '../../lib/distributed.js';
import { arange, gelu, manualSeed, nn, randint, randn, type Tensor } from '../../lib/index.js';
import type { World } from './worlds.js';

/** Two layers and two activations. */
export class Mlp extends nn.Module {
  inProj: nn.Linear;
  outProj: nn.Linear;
  constructor(dim: number) {
    super();
    this.inProj = new nn.Linear(dim, 4 * dim);
    this.outProj = new nn.Linear(4 * dim, dim);
  }
  forward(x: Tensor): Tensor {
    return this.outProj(this.inProj(x).relu()).relu();
  }
}

const HIDDEN = 16;

function simpleMlp(): nn.Sequential {
  return new nn.Sequential(
    new nn.Linear(HIDDEN, HIDDEN),
    new nn.ReLU(),
    new nn.Linear(HIDDEN, HIDDEN),
    new nn.ReLU(),
    new nn.Linear(HIDDEN, HIDDEN),
  );
}

const [DIM, HEADS, VOCABULARY, LENGTH, DROPOUT] = [16, 4, 8, 16, 0.1];

class Attention extends nn.Module {
  wq = new nn.Linear(DIM, DIM, { bias: false });
  wk = new nn.Linear(DIM, DIM, { bias: false });
  wv = new nn.Linear(DIM, DIM, { bias: false });
  wo = new nn.Linear(DIM, DIM, { bias: false });
  residDropout = new nn.Dropout(DROPOUT);
  forward(x: Tensor): Tensor {
    const [batch, length] = x.shape as [number, number];
    const heads = (t: Tensor): Tensor =>
      t.view([batch, length, HEADS, DIM / HEADS]).transpose(1, 2);
    const attended = nn.functional.scaledDotProductAttention(
      heads(this.wq(x)),
      heads(this.wk(x)),
      heads(this.wv(x)),
      { dropoutP: this.training ? DROPOUT : 0, isCausal: true },
    );
    const joined = attended.transpose(1, 2).contiguous().view([batch, length, DIM]);
    return this.residDropout(this.wo(joined));
  }
}

class FeedForward extends nn.Module {
  w1 = new nn.Linear(DIM, 4 * DIM);
  w2 = new nn.Linear(4 * DIM, DIM);
  residDropout = new nn.Dropout(DROPOUT);
  forward(x: Tensor): Tensor {
    return this.residDropout(this.w2(gelu(this.w1(x))));
  }
}

class Block extends nn.Module {
  attentionNorm = new nn.LayerNorm(DIM);
  attention = new Attention();
  ffnNorm = new nn.LayerNorm(DIM);
  feedForward = new FeedForward();
  forward(x: Tensor): Tensor {
    const h = x.add(this.attention(this.attentionNorm(x)));
    return h.add(this.feedForward(this.ffnNorm(h)));
  }
}

/** Two blocks, and an output that shares the weight of the embedding. */
export class Transformer extends nn.Module {
  tokEmbeddings = new nn.Embedding(VOCABULARY, DIM);
  posEmbeddings = new nn.Embedding(LENGTH, DIM);
  dropout = new nn.Dropout(DROPOUT);
  layers = new nn.ModuleList([new Block(), new Block()]);
  norm = new nn.LayerNorm(DIM);
  output = new nn.Linear(DIM, VOCABULARY, { bias: false });
  constructor() {
    super();
    this.output.weight = this.tokEmbeddings.weight;
  }
  forward(tokens: Tensor): Tensor {
    const positions = arange(tokens.shape[1] as number, { device: tokens.device });
    let h = this.dropout(this.tokEmbeddings(tokens).add(this.posEmbeddings(positions)));
    for (const layer of this.layers) h = layer(h);
    return this.output(this.norm(h)).float();
  }
}

type Device = World['device'];

/** A model of the cases 4 to 9. */
export interface Sharding {
  readonly make: () => nn.Module;
  readonly shard: (model: nn.Module, device: Device, ranks: number) => void;
  readonly input: (rank: number, device: Device) => Tensor;
  readonly numel: number;
  /** The groups of parameters, each of which is gathered on its own. */
  readonly groups: number;
  /** Learning rates by which each step changes the loss and none makes it infinite. */
  readonly rates: readonly number[];
  readonly hasDropout: boolean;
  /** Whether decompositions of its ops round where the ops do not. */
  readonly roundsInParts: boolean;
}

const reshards = { reshardAfterForward: true } as const;

export const MLP: Sharding = {
  make: simpleMlp,
  shard: (model) => void fullyShard(model, reshards),
  input: (rank, device) => {
    manualSeed(rank);
    return randn([2, HIDDEN], { device });
  },
  numel: 816,
  groups: 1,
  rates: [1e-4, 1e-2],
  hasDropout: false,
  roundsInParts: false,
};

export const TRANSFORMER: Sharding = {
  make: () => new Transformer(),
  shard: (model, device, ranks) => {
    const options = { ...reshards, mesh: initDeviceMesh(device, [ranks]) };
    for (const layer of (model as Transformer).layers) fullyShard(layer, options);
    fullyShard(model, options);
  },
  input: (rank, device) => {
    manualSeed(rank);
    return randint(0, VOCABULARY, [2, LENGTH], { device });
  },
  numel: 6_848,
  groups: 3,
  rates: [1e-4, 1e-3],
  hasDropout: true,
  roundsInParts: true,
};

/** The model that a seed draws. */
export function seeded<M extends nn.AnyModule>(make: () => M, seed: number): M {
  manualSeed(seed);
  return make();
}
