/** The model, the optimizers and the comparison with DDP of the cases of compiled train steps. */
import assert from 'node:assert/strict';
import { DistributedDataParallel } from '../../lib/distributed.js';
import { manualSeed, nn, noGrad, optim, randn, type Tensor } from '../../lib/index.js';
import { compile, type SpmdOptions, type SpmdStep } from '../../lib/spmd/index.js';

type Model = nn.Module<[x: Tensor], Tensor>;
type Step = (model: Model, optimizer: optim.Adam, batch: Tensor) => void;

export interface StepCase {
  readonly layers: number;
  readonly dim: number;
  readonly batchSize: number;
  readonly fused?: boolean;
  readonly iterations?: number;
  readonly world?: number;
  readonly device?: 'cpu' | 'cuda';
  /** Iterations after which parameters are those of DDP; by default all. */
  readonly equalAfter?: (iteration: number) => boolean;
}

function modelOf(layers: number, dim: number): Model {
  manualSeed(0);
  const modules: nn.Module[] = [];
  for (let i = 0; i < layers; i++) modules.push(new nn.Linear(dim, dim), new nn.ReLU());
  return new nn.Sequential(...(modules as never[])) as unknown as Model;
}

const trainStep: Step = (model, optimizer, batch) => {
  model(batch).sum().backward();
  optimizer.step();
  optimizer.zeroGrad();
};

/**
 * Trains by the compiled step and by DDP, whose averaged gradients are multiplied by the number of
 * ranks, from the same state; compares parameters and optimizer state after each iteration.
 */
export async function assertTrainsAsDdp(
  rank: number,
  options: SpmdOptions,
  { layers, dim, batchSize, ...more }: StepCase,
): Promise<SpmdStep<[Model, optim.Adam, Tensor], void>> {
  const {
    fused = false,
    iterations = 5,
    world = 2,
    device = 'cpu',
    equalAfter = () => true,
  } = more;
  const model = modelOf(layers, dim).to(device);
  const ddp = new DistributedDataParallel(
    modelOf(layers, dim).to(device) as never,
  ) as unknown as Model;
  const adam = (m: Model): optim.Adam =>
    new optim.Adam(m.parameters(), { lr: 0.01, capturable: true, fused, foreach: !fused });
  const [optimizer, ddpOptimizer] = [adam(model), adam(ddp)];
  const ddpStep: Step = (m, o, batch) => {
    m(batch).sum().backward();
    noGrad(() => {
      for (const p of m.parameters()) p.grad?.mul_(world);
    });
    o.step();
    o.zeroGrad();
  };
  // Optimizer state exists before the step is captured.
  const first = randn([batchSize, dim], { device });
  trainStep(model, optimizer, first);
  trainStep(ddp, ddpOptimizer, first);
  const step = compile(options)(trainStep);
  for (let i = 0; i < iterations; i++) {
    const batch = randn([batchSize, dim], { device }).mul(rank + 1);
    if (i < iterations - 1) step(model, optimizer, batch);
    else step(model, optimizer, batch, { lastTrainStep: true });
    ddpStep(ddp, ddpOptimizer, batch);
    if (!equalAfter(i)) continue;
    await assertSame(model, optimizer, ddp, ddpOptimizer, `step ${i}`);
  }
  for (const p of model.parameters()) assert.equal(p.grad, null);
  return step;
}

/** Parameters and optimizer state. */
function stateOf(model: Model, optimizer: optim.Adam): [string, Tensor][] {
  return [...model.namedParameters()].flatMap(([name, p]) =>
    [['', p] as const, ...Object.entries(optimizer.state.get(p) as Record<string, Tensor>)].map(
      ([key, t]): [string, Tensor] => [`${key} of ${name}`, t],
    ),
  );
}

async function assertSame(
  model: Model,
  optimizer: optim.Adam,
  ddp: Model,
  ddpOptimizer: optim.Adam,
  when: string,
): Promise<void> {
  const expected = stateOf(ddp, ddpOptimizer);
  for (const [i, [name, t]] of stateOf(model, optimizer).entries()) {
    const [a, b] = [
      await t.detach().read(),
      await (expected[i] as [string, Tensor])[1].detach().read(),
    ];
    assert.equal(a.length, b.length);
    for (let k = 0; k < a.length; k++) {
      const [seen, wanted] = [Number(a[k]), Number(b[k])];
      const room = 1e-5 + 1.3e-6 * Math.abs(wanted);
      if (!(Math.abs(seen - wanted) <= room))
        assert.fail(`${when}: element ${k} of ${name} is ${seen}, and ${wanted} with DDP`);
    }
  }
}
