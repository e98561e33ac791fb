/**
 * A block of a GPT of any size, one training step of it on a mesh, and formulas for its traffic and
 * memory.
 */
import {
  allReduce,
  ColwiseParallel,
  CommDebugMode,
  type DeviceMesh,
  DTensor,
  type ParallelizePlan,
  PrepareModuleInput,
  parallelizeModule,
  Replicate,
  RowwiseParallel,
} from '../../lib/distributed.js';
import {
  nn,
  noGrad,
  type optim,
  randn,
  scaledDotProductAttention,
  type Tensor,
} from '../../lib/index.js';

/** B batch of a rank, T time, D features, H heads. */
export interface Sizes {
  readonly batch: number;
  readonly time: number;
  readonly features: number;
  readonly heads: number;
}

class Attention extends nn.Module {
  readonly headSize: number;
  wq: nn.Linear;
  wk: nn.Linear;
  wv: nn.Linear;
  wo: nn.Linear;

  constructor({ features, heads }: Sizes) {
    super();
    this.headSize = features / heads;
    [this.wq, this.wk, this.wv, this.wo] = Array.from(
      { length: 4 },
      () => new nn.Linear(features, features),
    ) as [nn.Linear, nn.Linear, nn.Linear, nn.Linear];
  }

  forward(x: Tensor): Tensor {
    const heads = (t: Tensor): Tensor =>
      t.reshape(t.size(0), t.size(1), -1, this.headSize).transpose(1, 2);
    const out = scaledDotProductAttention(heads(this.wq(x)), heads(this.wk(x)), heads(this.wv(x)), {
      isCausal: true,
    });
    return this.wo(out.transpose(1, 2).flatten(2));
  }
}

class FeedForward extends nn.Module {
  up: nn.Linear;
  down: nn.Linear;

  constructor({ features }: Sizes) {
    super();
    this.up = new nn.Linear(features, 4 * features);
    this.down = new nn.Linear(4 * features, features);
  }

  forward(x: Tensor): Tensor {
    return this.down(this.up(x).gelu());
  }
}

/** `[B, T, D]` to `[B, T, D]`. */
export class Block extends nn.Module {
  norm1: nn.LayerNorm;
  attention: Attention;
  norm2: nn.LayerNorm;
  mlp: FeedForward;

  constructor(sizes: Sizes) {
    super();
    this.norm1 = new nn.LayerNorm(sizes.features);
    this.attention = new Attention(sizes);
    this.norm2 = new nn.LayerNorm(sizes.features);
    this.mlp = new FeedForward(sizes);
  }

  forward(x: Tensor): Tensor {
    const attended = x.add(this.attention(this.norm1(x)));
    return attended.add(this.mlp(this.norm2(attended)));
  }
}

const plan: ParallelizePlan = {
  attention: PrepareModuleInput({ inputLayouts: Replicate(), desiredInputLayouts: Replicate() }),
  'attention.w[qkv]': ColwiseParallel(),
  'attention.wo': RowwiseParallel(),
  'mlp.up': ColwiseParallel(),
  'mlp.down': RowwiseParallel(),
};

/** The block on a mesh `(dp, tp)`, its heads and the features between its products cut by tp. */
export const parallelBlock = (sizes: Sizes, mesh: DeviceMesh): Block =>
  parallelizeModule(new Block(sizes), mesh.get('tp'), plan);

/** The gradients of all dp ranks, averaged in place. */
function averageGradients(model: nn.AnyModule, mesh: DeviceMesh): void {
  noGrad(() => {
    for (const { grad } of model.parameters())
      if (grad !== null)
        allReduce(grad instanceof DTensor ? grad.toLocal() : grad, {
          op: 'avg',
          group: mesh.getGroup('dp'),
        });
  });
}

/** A step, and what was communicated in it. */
export function trainingStep(
  model: Block,
  optimizer: optim.Optimizer,
  mesh: DeviceMesh,
  { batch, time, features }: Sizes,
): CommDebugMode {
  const comm = new CommDebugMode();
  comm.run(() => {
    const x = randn([batch, time, features]);
    model(x).square().mean().backward();
    averageGradients(model, mesh);
    optimizer.step();
    optimizer.zeroGrad();
  });
  return comm;
}

const FLOAT = 4;

/**
 * Elements of a rank's parameters: four products and a norm before them, two products and a norm
 * before them.
 */
export function parameterCount({ features: d }: Sizes, tp: number): number {
  const attention = (4 * d * d) / tp + (3 * d) / tp + d;
  const mlp = (8 * d * d) / tp + (4 * d) / tp + d;
  return 2 * (2 * d) + attention + mlp;
}

/**
 * What a step must send: after each pair of products, and before it in backward, one all-reduce of
 * `[B, T, D]` over tp; the gradients over dp.
 */
export function expectedTraffic(sizes: Sizes, dp: number, tp: number): { tp: number; dp: number } {
  const { batch, time, features } = sizes;
  const ring = (ranks: number, elements: number): number =>
    (2 * (ranks - 1) * elements * FLOAT) / ranks;
  return { tp: 4 * ring(tp, batch * time * features), dp: ring(dp, parameterCount(sizes, tp)) };
}

/**
 * What backward needs of a block, in bytes. Whole on each rank: the inputs and the results of both
 * norms, with a mean and a deviation for each row. Of the rank's part: queries, keys, values, the
 * attention's result and its normalizers; what goes into the GELU and comes out of it.
 */
export function activationBytes({ batch, time, features, heads }: Sizes, tp: number): number {
  const rows = batch * time;
  const whole = 4 * rows * features + 4 * rows;
  const part = (3 + 1) * rows * features + rows * heads + 2 * rows * 4 * features;
  return FLOAT * (whole + part / tp);
}
