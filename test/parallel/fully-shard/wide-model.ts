/** A model whose parameters fullyShard gathers in place, for tests of gathers. */
import { fullyShard } from '../../../lib/distributed.js';
import { manualSeed, nn, type Tensor } from '../../../lib/index.js';

type Options = Parameters<typeof fullyShard>[1];

/** Weights large enough to be gathered in place; five rows are uneven. The biases are copied. */
class Wide extends nn.Module {
  up = new nn.Linear(6, 8192);
  down = new nn.Linear(8192, 5);
  norm = new nn.LayerNorm(5);
  forward(x: Tensor): Tensor {
    return this.norm(this.down(this.up(x).relu()));
  }
}

export class WideModel extends nn.Module {
  first = new Wide();
  middle = new nn.Linear(5, 6);
  last = new Wide();
  forward(x: Tensor): Tensor {
    return this.last(this.middle(this.first(x)).relu());
  }
}

export function newWideModel(dtype: 'float32' | 'float64' = 'float64'): WideModel {
  manualSeed(0);
  return new WideModel().to(dtype);
}

export function shardedWide(model: WideModel, options: Options = {}): WideModel {
  fullyShard(model.first, options);
  fullyShard(model.last, options);
  return fullyShard(model, options);
}
