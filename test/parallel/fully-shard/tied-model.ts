/** A model whose embedding and output layer may be tied, and its training sharded and alone. */
import { checkpoint, DTensor, type FSDPModule, fullyShard } from '../../../lib/distributed.js';
import {
  int64,
  manualSeed,
  nn,
  noGrad,
  ones,
  optim,
  type Tensor,
  tensor,
} from '../../../lib/index.js';
import { assertClose, type Values, valuesOf } from './model.js';

export const [TOKENS, WIDTH] = [7, 6] as const;

export class Block extends nn.Module {
  up = new nn.Linear(WIDTH, 10);
  down = new nn.Linear(10, WIDTH);
  forward(x: Tensor): Tensor {
    return x.add(this.down(this.up(x).relu()));
  }
}

/** How the parts of a model follow each other. */
export type Use = (model: Gpt, ids: Tensor) => Tensor;

/** The embedding and the output layer share a weight. */
export class Gpt extends nn.Module<[ids: Tensor], Tensor> {
  tokens = new nn.Embedding(TOKENS, WIDTH);
  first = new Block();
  second = new Block();
  norm = new nn.LayerNorm(WIDTH);
  head = new nn.Linear(WIDTH, TOKENS, { bias: false });
  private readonly use: Use;
  constructor(use: Use, isTied: boolean) {
    super();
    this.use = use;
    if (isTied) this.head.weight = this.tokens.weight;
  }
  forward(ids: Tensor): Tensor {
    return this.use(this, ids);
  }
}

export const body = (model: Gpt, x: Tensor): Tensor => model.norm(model.second(model.first(x)));
export const once: Use = (model, ids) => model.head(body(model, model.tokens(ids)));

export const USES: Readonly<Record<string, Use>> = {
  'each once': once,
  'one of them twice before the other': (model, ids) =>
    model.head(body(model, model.tokens(ids).add(model.tokens(ids.add(1).remainder(TOKENS))))),
  'one of them again after the other': (model, ids) =>
    model
      .head(body(model, model.tokens(ids)))
      .softmax(-1)
      .sum(-1, { keepdim: true })
      .mul(model.tokens(ids).sin()),
  'both, then both again': (model, ids) =>
    once(model, ids).add(once(model, ids.add(1).remainder(TOKENS)).cos()),
  'in the other order': (model, ids) =>
    model.tokens(ids).add(model.head(ones([1, WIDTH]).double()).sum()),
  'the first one alone': (model, ids) => body(model, model.tokens(ids)),
  'the last one alone': (model, ids) =>
    model.head(body(model, ids.unsqueeze(-1).to('float64').mul(0.1).expand([-1, -1, WIDTH]))),
  'one of them without gradients': (model, ids) =>
    model.head(
      body(
        model,
        noGrad(() => model.tokens(ids)),
      ),
    ),
  'in a checkpoint': (model, ids) =>
    model.head(checkpoint((given: Tensor) => body(model, model.tokens(given)), ids)),
  'in a checkpoint of all': (model, ids) => checkpoint((given: Tensor) => once(model, given), ids),
};

export const modelOf = (use: Use, isTied: boolean): Gpt => {
  manualSeed(3);
  return new Gpt(use, isTied).double();
};

const STEPS = 4;
export const idsOf = (step: number, rank: number): Tensor =>
  tensor(
    [0, 1].map((row) => [0, 1, 2].map((at) => (3 * step + 2 * at + row + 2 * rank) % TOKENS)),
    { dtype: int64 },
  );
export const lossOf = (run: (ids: Tensor) => Tensor, ids: Tensor): Tensor =>
  run(ids).square().mean();

export interface Trained {
  readonly values: Values;
  readonly grads: Values;
}

export async function gradientsOf(model: nn.AnyModule): Promise<Values> {
  const grads: Values = new Map();
  for (const [name, { grad }] of model.namedParameters()) {
    const whole = grad instanceof DTensor ? grad.fullTensor() : grad;
    if (whole !== null) grads.set(name, [...(await whole.reshape([-1]).read())].map(Number));
  }
  return grads;
}

/** The mean of the losses of all batches, with the batches of one rank or of all. */
export async function trained(
  model: nn.AnyModule,
  ranks: readonly number[],
  prepare: (model: nn.AnyModule, step: number) => void = () => {},
  run = model as unknown as (ids: Tensor) => Tensor,
): Promise<Trained> {
  const adam = new optim.AdamW(model.parameters(), { lr: 0.01 });
  let grads: Values = new Map();
  for (let step = 0; step < STEPS; step++) {
    prepare(model, step);
    for (const rank of ranks) lossOf(run, idsOf(step, rank)).div(ranks.length).backward();
    grads = await gradientsOf(model);
    adam.step();
    adam.zeroGrad();
  }
  return { values: await valuesOf(model), grads };
}

export type Sharded = Gpt & FSDPModule;
export type Options = Parameters<typeof fullyShard>[1];

export function shardedOf(use: Use, isTied: boolean, options: Options = {}): Sharded {
  const model = modelOf(use, isTied);
  fullyShard(model.first, options);
  fullyShard([model.tokens, model.head], options);
  return fullyShard(model, options);
}

export function assertTrained(found: Trained, expected: Trained): void {
  assertClose(found.grads, expected.grads);
  assertClose(found.values, expected.values);
}
