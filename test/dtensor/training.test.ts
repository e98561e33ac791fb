/**
 * Modules, losses and optimizers on distributed parameters and inputs have the values of one
 * device.
 */
import assert from 'node:assert/strict';
import { type DeviceMesh, initDeviceMesh } from '../../lib/distributed.js';
import { float64, linspace, manualSeed, nn, optim, randint, type Tensor } from '../../lib/index.js';
import type { AnyModule } from '../../lib/nn/module.js';
import { reusedRanks } from '../distributed/support/reused-ranks.js';
import { Rng } from '../fuzz/rng.js';
import { assertWhole, drawSpec, placed } from './random-placements.js';

type Forward = (module: never, ...inputs: Tensor[]) => Tensor;

interface Model {
  readonly make: () => AnyModule;
  readonly inputs: () => Tensor[];
  readonly forward?: Forward;
}

const values = (...shape: number[]): Tensor => {
  const count = shape.reduce((a, b) => a * b, 1);
  return linspace(0, count, count, { dtype: float64 }).mul(1.3).sin().reshape(shape);
};
const tokens = (...shape: number[]): Tensor => randint(0, 7, shape);
const call = (module: unknown, ...inputs: Tensor[]): Tensor =>
  (module as (...args: Tensor[]) => Tensor)(...inputs);
const gpt = () =>
  new nn.TransformerEncoderLayer(8, 2, {
    dimFeedforward: 12,
    dropout: 0.1,
    batchFirst: true,
    activation: 'gelu',
    normFirst: true,
  });

const models: Record<string, Model> = {
  Linear: { make: () => new nn.Linear(6, 5), inputs: () => [values(3, 6)] },
  'Linear on sequences': { make: () => new nn.Linear(6, 5), inputs: () => [values(2, 3, 6)] },
  Embedding: { make: () => new nn.Embedding(7, 5), inputs: () => [tokens(3, 5)] },
  'Embedding with padding': {
    make: () => new nn.Embedding(7, 5, { paddingIdx: 2 }),
    inputs: () => [tokens(3, 5)],
  },
  LayerNorm: { make: () => new nn.LayerNorm([5]), inputs: () => [values(3, 2, 5)] },
  RMSNorm: { make: () => new nn.RMSNorm([5]), inputs: () => [values(3, 2, 5)] },
  'GELU MLP': {
    make: () =>
      new nn.Sequential(
        new nn.Linear(6, 9),
        new nn.GELU(),
        new nn.Dropout(0.3),
        new nn.Linear(9, 5),
      ),
    inputs: () => [values(5, 6)],
  },
  MultiheadAttention: {
    make: () => new nn.MultiheadAttention(8, 2, { batchFirst: true }),
    inputs: () => [values(3, 5, 8)],
    forward: (module, x) =>
      (module as (...args: unknown[]) => [Tensor])(x as Tensor, x as Tensor, x as Tensor, {
        needWeights: false,
      })[0],
  },
  'causal attention': {
    make: () => new nn.Identity(),
    inputs: () => [values(2, 3, 5, 4), values(2, 3, 5, 4).mul(0.7), values(2, 3, 5, 4).cos()],
    forward: (_, q, k, v) =>
      nn.functional.scaledDotProductAttention(q as Tensor, k as Tensor, v as Tensor, {
        isCausal: true,
      }),
  },
  'attention with a mask': {
    make: () => new nn.Identity(),
    inputs: () => [values(2, 3, 5, 4), values(2, 3, 6, 4), values(2, 3, 6, 4).cos(), values(5, 6)],
    forward: (_, q, k, v, attnMask) =>
      nn.functional.scaledDotProductAttention(q as Tensor, k as Tensor, v as Tensor, {
        attnMask: attnMask as Tensor,
      }),
  },
  'cross entropy': {
    make: () => new nn.CrossEntropyLoss({ labelSmoothing: 0.1 }),
    inputs: () => [values(5, 7), tokens(5)],
  },
  'cross entropy without reduction': {
    make: () => new nn.CrossEntropyLoss({ reduction: 'none', ignoreIndex: 3 }),
    inputs: () => [values(5, 7, 2), tokens(5, 2)],
  },
  'squared errors': {
    make: () => new nn.MSELoss(),
    inputs: () => [values(5, 3), values(5, 3).cos()],
  },
  TransformerEncoderLayer: { make: gpt, inputs: () => [values(3, 5, 8)] },
  'a language model': {
    make: () =>
      new nn.Sequential(new nn.Embedding(7, 8), gpt(), new nn.LayerNorm([8]), new nn.Linear(8, 7)),
    inputs: () => [tokens(3, 5)],
    forward: (module, ids) =>
      nn.functional.crossEntropy(
        call(module, ids as Tensor).reshape([15, 7]),
        (ids as Tensor).reshape([15]),
      ),
  },
};

/** Puts parameters in the place of those at the same paths. */
function replaceParameters(
  module: AnyModule,
  replacement: (parameter: nn.Parameter) => Tensor,
): void {
  for (const [path, parameter] of [...module.namedParameters()]) {
    const dot = path.lastIndexOf('.');
    const owner = dot < 0 ? module : module.getSubmodule<AnyModule>(path.slice(0, dot));
    owner.registerParameter(path.slice(dot + 1), new nn.Parameter(replacement(parameter)));
  }
}

/** The same module twice: plain, and with parameters in random placements. */
function twins(
  make: () => AnyModule,
  mesh: DeviceMesh,
  rng: Rng,
): [whole: AnyModule, sharded: AnyModule] {
  const [whole, sharded] = [0, 1].map(() => {
    manualSeed(1);
    return make().to(float64);
  }) as [AnyModule, AnyModule];
  replaceParameters(sharded, (parameter) =>
    placed(parameter, drawSpec(rng, mesh, parameter, { partial: false })),
  );
  return [whole, sharded];
}

/** Runs forward and backward with the same draws of dropout. */
function train(model: Model, module: AnyModule, inputs: readonly Tensor[]): Tensor {
  manualSeed(2);
  const output = (model.forward ?? call)(module as never, ...inputs);
  output.mul(output).sum().backward();
  return output;
}

async function checkModel(name: string, model: Model, mesh: DeviceMesh, rng: Rng): Promise<void> {
  const [whole, sharded] = twins(model.make, mesh, rng);
  manualSeed(3);
  const inputs = model.inputs().map((t) => t.requiresGrad_(t.dtype.isFloatingPoint));
  const specs = inputs.map((t) => drawSpec(rng, mesh, t, { partial: t.dtype.isFloatingPoint }));
  const held = inputs.map((t, i) =>
    placed(t, specs[i] as NonNullable<(typeof specs)[number]>, t.requiresGrad),
  );
  const what = `${name}, inputs ${specs.join('; ')}, parameters ${[...sharded.parameters()].map((p) => p._spec).join('; ')}`;
  const expected = train(model, whole, inputs);
  await assertWhole(train(model, sharded, held), expected, `output of ${what}`);
  for (const [i, t] of inputs.entries())
    if (t.requiresGrad)
      await assertWhole(
        held[i]?.grad as Tensor,
        t.grad as Tensor,
        `gradient of input ${i} of ${what}`,
      );
  const parameters = new Map(sharded.namedParameters());
  for (const [path, parameter] of whole.namedParameters()) {
    const own = parameters.get(path) as Tensor;
    await assertWhole(
      own.grad as Tensor,
      parameter.grad as Tensor,
      `gradient of ${path} of ${what}`,
    );
    assert.deepEqual(own.grad?.placements, own.placements, what);
  }
}

const mlp = (): AnyModule =>
  new nn.Sequential(new nn.Linear(6, 9), new nn.ReLU(), new nn.Linear(9, 5));

const optimizers: Record<string, (params: Iterable<Tensor>) => optim.Optimizer> = {};
for (const [mode, flags] of Object.entries({
  'of its own choice': {},
  foreach: { foreach: true },
  fused: { fused: true },
  'one by one': { foreach: false },
})) {
  optimizers[`SGD ${mode}`] = (params) =>
    new optim.SGD(params, { lr: 0.1, ...flags }) as optim.Optimizer;
  optimizers[`SGD with momentum ${mode}`] = (params) =>
    new optim.SGD(params, {
      lr: 0.1,
      momentum: 0.9,
      nesterov: true,
      weightDecay: 0.01,
      ...flags,
    }) as optim.Optimizer;
  optimizers[`Adam ${mode}`] = (params) =>
    new optim.Adam(params, { lr: 0.01, weightDecay: 0.1, ...flags }) as optim.Optimizer;
  optimizers[`AdamW ${mode}`] = (params) =>
    new optim.AdamW(params, { lr: 0.01, amsgrad: true, ...flags }) as optim.Optimizer;
}

async function checkOptimizer(
  make: (params: Iterable<Tensor>) => optim.Optimizer,
  mesh: DeviceMesh,
  rng: Rng,
): Promise<void> {
  const [whole, sharded] = twins(mlp, mesh, rng);
  const x = values(5, 6);
  const held = placed(x, drawSpec(rng, mesh, x));
  const [one, other] = [whole, sharded].map((module) => make(module.parameters())) as [
    optim.Optimizer,
    optim.Optimizer,
  ];
  for (let step = 0; step < 3; step++) {
    for (const [module, optimizer, input] of [
      [whole, one, x],
      [sharded, other, held],
    ] as const) {
      optimizer.zeroGrad();
      call(module, input).square().sum().backward();
    }
    const norms = [whole, sharded].map((module) =>
      nn.utils.clipGradNorm_(module.parameters(), 0.5),
    ) as [Tensor, Tensor];
    await assertWhole(norms[1], norms[0], 'the norm of the gradients');
    one.step();
    other.step();
  }
  const parameters = new Map(sharded.namedParameters());
  for (const [path, parameter] of whole.namedParameters())
    await assertWhole(parameters.get(path) as Tensor, parameter.detach(), path);
}

describe('training on distributed tensors', function () {
  this.timeout(60_000);
  const ranks = reusedRanks(4);
  const rounds = 3;
  const seed = Number(process.env['SHARDWISE_TEST_SEED'] ?? Date.now() % 1e6);

  const check = async (fn: (mesh: DeviceMesh, rng: Rng) => Promise<void>): Promise<void> => {
    await ranks.run(async () => {
      const rng = new Rng(seed);
      for (const shape of [[4], [2, 2]]) {
        for (let round = 0; round < rounds; round++) {
          await fn(initDeviceMesh('cpu', shape), rng).catch((error: Error) => {
            throw new Error(`SHARDWISE_TEST_SEED=${seed}, mesh [${shape}]: ${error.message}`, {
              cause: error,
            });
          });
        }
      }
    });
  };

  for (const [name, model] of Object.entries(models)) {
    it(`has the values and gradients of one device: ${name}`, () =>
      check((mesh, rng) => checkModel(name, model, mesh, rng)));
  }

  for (const [name, make] of Object.entries(optimizers)) {
    it(`takes the optimizer steps of one device: ${name}`, () =>
      check((mesh, rng) => checkOptimizer(make, mesh, rng)));
  }
});
