/** A model whose parts may fail, for training that is compiled and sharded or replicated. */
import { getRank } from '../../lib/distributed.js';
import { library, nn, ones, type Tensor } from '../../lib/index.js';

/** Where the model fails at a run, by rank: graphs repeat ops, not JavaScript code. */
export const failing = new Map<number, 'forward' | 'backward'>();
const failsIn = (phase: 'forward' | 'backward'): void => {
  if (failing.get(getRank()) === phase) throw new RangeError(`failed in ${phase}`);
};
const fragile = library.customOp('compiledModels::fragile', {}, (x: Tensor) => {
  failsIn('forward');
  return x.clone();
});
const fragileBackward = library.customOp('compiledModels::fragileBackward', {}, (x: Tensor) => {
  failsIn('backward');
  return x.clone();
});
fragileBackward.registerFake((x) => x);
fragile
  .registerFake((x) => x)
  .registerAutograd({
    backward: (_, grad) => [grad && fragileBackward(grad)],
  });

/** Of ops whose decompositions round as they do. */
export class Block extends nn.Module {
  scale = new nn.Parameter(ones([8]));
  up: nn.Linear;
  drop = new nn.Dropout(0.25);
  down: nn.Linear;
  constructor(width: number) {
    super();
    this.up = new nn.Linear(8, width);
    this.down = new nn.Linear(width, 8);
  }
  forward(x: Tensor): Tensor {
    return x.add(this.down(fragile(this.drop(this.up(x.mul(this.scale)).relu()))));
  }
}

export type Use = (
  block: nn.AnyModule & ((x: Tensor) => Tensor),
  x: Tensor,
  index: number,
) => Tensor;

/** Three blocks between two layers; each use of a parameter in backward needs its value. */
export class Model extends nn.Module {
  first = new nn.Linear(4, 8);
  blocks: nn.ModuleList<Block>;
  last = new nn.Linear(8, 3);
  /** Whether the middle block runs. */
  isWhole = true;
  /** Whether forward throws before the last layer, in JavaScript. */
  throws = false;
  private readonly use: Use;
  constructor(width: number, use: Use) {
    super();
    this.blocks = new nn.ModuleList([new Block(width), new Block(width), new Block(width)]);
    this.use = use;
  }
  forward(x: Tensor): Tensor {
    let y = this.first(x).relu();
    for (const [i, block] of [...this.blocks].entries())
      if (this.isWhole || i !== 1) y = this.use(block as never, y, i);
    if (this.throws) throw new RangeError('failed in JavaScript');
    return this.last(y);
  }
}
