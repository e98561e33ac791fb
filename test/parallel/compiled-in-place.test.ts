/** In-place ops in models that are sharded or replicated and compiled: their graphs are lowered. */
import assert from 'node:assert/strict';
import {
  DistributedDataParallel,
  DTensor,
  FullyShardedDataParallel,
  fullyShard,
  getRank,
} from '../../lib/distributed.js';
import {
  compile,
  compiler,
  int64,
  manualSeed,
  nn,
  noGrad,
  randint,
  randn,
  type Tensor,
} from '../../lib/index.js';
import { withRanks } from '../../lib/testing/index.js';

type Model = nn.AnyModule & ((x: Tensor) => Tensor);

type Change = (y: Tensor, layer: nn.Linear) => Tensor;

/** Two layers, with a change of the result of the first one between them. */
class Changes extends nn.Module {
  layer = new nn.Linear(4, 4);
  last = new nn.Linear(4, 2);
  private readonly change: Change;
  constructor(change: Change) {
    super();
    this.change = change;
  }
  forward(x: Tensor): Tensor {
    return this.last(this.change(this.layer(x), this.layer));
  }
}

/** Its buffers change in place. */
class Normalises extends nn.Module {
  norm = new nn.BatchNorm1d(4);
  last = new nn.Linear(4, 2);
  forward(x: Tensor): Tensor {
    return this.last(this.norm(x));
  }
}

class Embeds extends nn.Module {
  embedding = new nn.Embedding(5, 4, { paddingIdx: 0 });
  last = new nn.Linear(4, 2);
  forward(x: Tensor): Tensor {
    return this.last(this.embedding(x).tanh_());
  }
}

const numbers = (): Tensor => randn([3, 4]);
const MODELS: Readonly<Record<string, readonly [make: () => nn.AnyModule, input: () => Tensor]>> = {
  mul_: [() => new Changes((y) => y.mul_(2)), numbers],
  relu_: [() => new Changes((y) => y.relu_()), numbers],
  'add_ on a clone': [() => new Changes((y) => y.mul(y.clone().add_(1))), numbers],
  'copy_ into a row': [
    () =>
      new Changes((y) => {
        const z = y.clone();
        z.select(0, 1).copy_(y.select(0, 0).sin());
        return z;
      }),
    numbers,
  ],
  BatchNorm1d: [() => new Normalises(), numbers],
  'Embedding with paddingIdx': [() => new Embeds(), () => randint(0, 5, [6], { dtype: int64 })],
};

const WAYS: Readonly<Record<string, (model: nn.AnyModule) => Model>> = {
  fullyShard: (model) => fullyShard(model) as unknown as Model,
  'fullyShard that keeps whole parameters': (model) =>
    fullyShard(model, { reshardAfterForward: false }) as unknown as Model,
  'fullyShard of each layer': (model) => {
    for (const layer of model.children()) fullyShard(layer);
    return fullyShard(model) as unknown as Model;
  },
  'flat parameters': (model) => new FullyShardedDataParallel(model) as unknown as Model,
  'flat parameters with useOrigParams': (model) =>
    new FullyShardedDataParallel(model, { useOrigParams: true }) as unknown as Model,
  DistributedDataParallel: (model) => new DistributedDataParallel(model) as unknown as Model,
};

const STEPS = 3;

/** What the rank has of each tensor. */
async function valuesOf(
  tensors: Iterable<readonly [name: string, t: Tensor | null]>,
): Promise<Record<string, unknown>> {
  const values: Record<string, unknown> = {};
  for (const [name, t] of tensors) {
    const local = t instanceof DTensor ? t.toLocal() : t;
    values[name] = local && Array.from(await local.detach().contiguous().read(), Number);
  }
  return values;
}

/** Results, gradients and buffers of each step. Every result is one of a lowered graph. */
async function trained(model: Model, run: Model, input: () => Tensor): Promise<unknown[]> {
  manualSeed(2 + getRank());
  const seen: unknown[] = [];
  for (let step = 0; step < STEPS; step++) {
    const y = run(input());
    if (run !== model) assert.equal(y.gradFn?.name, 'CompiledFunction');
    y.square().mean().backward();
    const grads = [...model.namedParameters()].map(([name, p]) => [name, p.grad] as const);
    seen.push([await valuesOf([['y', y], ...grads]), await valuesOf(model.namedBuffers())]);
    model.zeroGrad();
  }
  return seen;
}

/** A model with seeded parameters. */
function seeded(make: () => nn.AnyModule, way: (model: nn.AnyModule) => Model): Model {
  manualSeed(1);
  return way(make());
}

describe('a parallel model with in-place ops that is compiled', () => {
  for (const [way, divide] of Object.entries(WAYS))
    for (const [op, [make, input]] of Object.entries(MODELS))
      it(
        `is lowered, and trains as the uncompiled one: ${way}, ${op}`,
        withRanks(2, async () => {
          const other = seeded(make, divide);
          const expected = await trained(other, other, input);
          for (const backend of ['aot_eager', 'inductor'] as const) {
            const model = seeded(make, divide);
            const run = compile(model, { backend, fullgraph: true }) as unknown as Model;
            assert.deepEqual(await trained(model, run, input), expected, backend);
          }
        }),
      );

  for (const way of ['fullyShard', 'flat parameters'] as const)
    it(
      `runs op by op where forward changes whole parameters, and says so: ${way}`,
      withRanks(2, async () => {
        const make = (): nn.AnyModule =>
          new Changes((y, layer) => {
            noGrad(() => layer.weight.mul_(2));
            return y.matmul(layer.weight);
          });
        const [model, other] = [0, 1].map(() => seeded(make, WAYS[way] as never)) as [Model, Model];
        const x = numbers();
        const explained = compiler.explain(compile(model, { backend: 'aot_eager' }))(x);
        assert.match(explained.graphs[0]?.unlowered ?? '', /memory was changed in place/);
        const values = [explained.result as Tensor, other(x)].map((y) => valuesOf([['y', y]]));
        assert.deepEqual(await values[0], await values[1]);
      }),
    );
});
