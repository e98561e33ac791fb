/** The models of data_parallel_models.py. */
import { arange, nn, type Tensor } from '../../lib/index.js';
import { type Described, seededWeights } from './seeded-weights.js';

const [VOCAB, LENGTH, SIZE, HEADS, LAYERS, HIDDEN] = [13, 7, 10, 2, 2, 18] as const;
/** Rows of all ranks together. */
export const BATCH = 12;

export type ModelName = 'mlp' | 'gpt';
type AnyModule = nn.Module<[x: Tensor], Tensor>;

const tanhGelu = (x: Tensor): Tensor => nn.functional.gelu(x, { approximate: 'tanh' });

class Net extends nn.Module {
  up = new nn.Linear(6, 10);
  down = new nn.Linear(10, 3);
  norm = new nn.LayerNorm(3);
  forward(x: Tensor): Tensor {
    return this.norm(this.down(tanhGelu(this.up(x))));
  }
}

class Mlp extends nn.Module {
  first: AnyModule = new Net();
  second = new nn.Linear(3, 6);
  third: AnyModule = new Net();
  forward(x: Tensor): Tensor {
    return this.third(tanhGelu(this.second(this.first(x))));
  }
}

class Block extends nn.Module {
  norm1 = new nn.LayerNorm(SIZE);
  qkv = new nn.Linear(SIZE, 3 * SIZE, { bias: false });
  proj = new nn.Linear(SIZE, SIZE, { bias: false });
  norm2 = new nn.LayerNorm(SIZE);
  up = new nn.Linear(SIZE, HIDDEN);
  down = new nn.Linear(HIDDEN, SIZE);

  forward(x: Tensor): Tensor {
    const y = x.add(this.attention(this.norm1(x)));
    return y.add(this.down(tanhGelu(this.up(this.norm2(y)))));
  }

  private attention(x: Tensor): Tensor {
    const rows = x.size(0);
    const heads = (t: Tensor): Tensor =>
      t.reshape([rows, LENGTH, HEADS, SIZE / HEADS]).transpose(1, 2); // [B, H, T, D]
    const [q, k, v] = this.qkv(x).chunk(3, -1).map(heads) as [Tensor, Tensor, Tensor];
    const y = nn.functional.scaledDotProductAttention(q, k, v, { isCausal: true });
    return this.proj(y.transpose(1, 2).reshape([rows, LENGTH, SIZE]));
  }
}

class Gpt extends nn.Module {
  wte = new nn.Embedding(VOCAB, SIZE);
  wpe = new nn.Embedding(LENGTH, SIZE);
  layers = new nn.ModuleList<AnyModule>(Array.from({ length: LAYERS }, () => new Block()));
  norm = new nn.LayerNorm(SIZE);
  forward(tokens: Tensor): Tensor {
    let x = this.wte(tokens).add(this.wpe(arange(LENGTH)));
    for (const layer of this.layers) x = layer(x);
    return nn.functional.linear(this.norm(x), this.wte.weight);
  }
}

export type Model = Mlp | Gpt;

/** A model with the weights of the seed. */
export function newModel(name: ModelName, described: Described, seed: number): Model {
  const model = name === 'mlp' ? new Mlp() : new Gpt();
  model.loadStateDict(Object.fromEntries(seededWeights(described, seed, 'cpu')));
  return model;
}

/** Replaces each block by what `wrap` returns. */
export function wrapBlocks(model: Model, wrap: (block: AnyModule) => AnyModule): void {
  if (model instanceof Mlp) {
    model.first = wrap(model.first);
    model.third = wrap(model.third);
  } else model.layers = new nn.ModuleList([...model.layers].map(wrap));
}

/** `batch` is [rows, 9] numbers, 6 given and 3 wanted, or [rows, LENGTH + 1] tokens. */
export function lossOf(model: AnyModule, name: ModelName, batch: Tensor): Tensor {
  if (name === 'mlp')
    return nn.functional.mseLoss(
      model(batch.narrow(1, 0, 6)).to(batch.dtype),
      batch.narrow(1, 6, 3),
    );
  const logits = model(batch.narrow(1, 0, LENGTH)).float();
  return nn.functional.crossEntropy(logits.flatten(0, 1), batch.narrow(1, 1, LENGTH).flatten());
}
