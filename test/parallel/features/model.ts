/** The model of the matrix, as the features of a case ask for it. */
import { checkpoint } from '../../../lib/distributed.js';
import { type DType, float32, float64, manualSeed, nn, type Tensor } from '../../../lib/index.js';

/** What one training program has besides a forward pass, a backward pass and a step. */
export const FEATURES = [
  'checkpoints',
  'checkpoints in checkpoints',
  'a layer used twice',
  'several passes',
  'passes without gradients',
  'accumulation',
  'several batch sizes',
  'a scaler',
  'clipping',
  'hooks',
  'frozen parts',
  'tied parameters',
  'two dtypes',
  'objects as results',
] as const;
export type Feature = (typeof FEATURES)[number];
export type Features = ReadonlySet<Feature>;

/** A result that is neither an array nor a plain object. */
class Hidden {
  readonly value: Tensor;
  constructor(value: Tensor) {
    this.value = value;
  }
}

export type State = Tensor | Hidden;
export const valueOf = (state: State): Tensor => (state instanceof Hidden ? state.value : state);

export const WIDTH = 4;
const INNER = 5; // two ranks have different shards

/** A gated layer with a residual connection. Tied parameters belong to two of its linear layers. */
export class Block extends nn.Module<[State], State> {
  up: nn.Linear;
  gate: nn.Linear;
  down: nn.Linear;
  readonly features: Features;
  readonly dtype: DType;
  constructor(features: Features, dtype: DType) {
    super();
    this.features = features;
    this.dtype = dtype;
    this.up = new nn.Linear(WIDTH, INNER, { dtype });
    this.gate = new nn.Linear(WIDTH, INNER, { dtype });
    this.down = new nn.Linear(INNER, WIDTH, { dtype });
    if (features.has('tied parameters')) this.gate.weight = this.up.weight;
    if (features.has('hooks')) addHooks(this);
  }
  forward(state: State): State {
    const x = valueOf(state).to(this.dtype);
    const isNested = this.features.has('checkpoints in checkpoints');
    const y = (isNested ? checkpoint((t: Tensor) => this.gated(t), x) : this.gated(x)).add(x);
    return this.features.has('objects as results') ? new Hidden(y) : y;
  }
  private gated(x: Tensor): Tensor {
    const up = this.up(x).tanh();
    return this.down(up.mul(this.gate(x.mul(0.5)).sigmoid()));
  }
}

/** The hooks change values and gradients. */
function addHooks(block: Block): void {
  block.up.registerForwardPreHook((_, [x]) => [x.mul(1.5)]);
  block.registerForwardHook((_, __, result) => {
    const value = valueOf(result);
    if (value.requiresGrad) value.registerHook((grad) => grad.mul(3));
    return undefined;
  });
  block.down.registerFullBackwardHook((_, gradInput) =>
    gradInput.map((grad) => grad?.mul(0.5) ?? null),
  );
}

/** Two blocks and a head. */
export class Model extends nn.Module<[x: Tensor], State> {
  blocks: nn.ModuleList<Block>;
  head: nn.Linear;
  readonly features: Features;
  constructor(features: Features) {
    super();
    this.features = features;
    manualSeed(7);
    const dtypes = [float64, features.has('two dtypes') ? float32 : float64];
    const blocks = dtypes.map((dtype) => new Block(features, dtype)) as [Block, Block];
    this.blocks = new nn.ModuleList(blocks);
    this.head = new nn.Linear(WIDTH, 2, { dtype: float64 });
    if (features.has('frozen parts')) {
      blocks[0].requiresGrad_(false);
      blocks[1].down.requiresGrad_(false);
    }
  }
  forward(x: Tensor): State {
    const { features } = this;
    const hasCheckpoints =
      features.has('checkpoints') || features.has('checkpoints in checkpoints');
    const [first, second] = [...this.blocks] as [Block, Block];
    let state: State = x;
    for (const block of features.has('a layer used twice')
      ? [first, second, first]
      : [first, second])
      state = hasCheckpoints ? checkpoint((given: State) => block(given), state) : block(state);
    const y = this.head(valueOf(state).to(float64));
    return features.has('objects as results') ? new Hidden(y) : y;
  }
}
