/**
 * Plans for whole models: the two MLPs of PyTorch's compile tests, wildcards, shared parameters,
 * optimizers, mistakes.
 */
import assert from 'node:assert/strict';
import {
  ColwiseParallel,
  type DeviceMesh,
  DTensor,
  distributeModule,
  distributeTensor,
  initDeviceMesh,
  type ParallelizePlan,
  PrepareModuleInput,
  PrepareModuleOutput,
  parallelizeModule,
  Replicate,
  RowwiseParallel,
  SequenceParallel,
  Shard,
} from '../../lib/distributed.js';
import { float64, manualSeed, nn, optim, rand, ShardingError, Tensor } from '../../lib/index.js';
import { withRanks } from '../../lib/testing/index.js';
import { assertAlike, assertClose, commCounts, placementsOf } from './compare.js';

const dtype = float64;

class Mlp extends nn.Module {
  net1: nn.Linear;
  relu = new nn.ReLU();
  net2: nn.Linear;

  constructor() {
    super();
    manualSeed(5);
    this.net1 = new nn.Linear(10, 16, { dtype });
    this.net2 = new nn.Linear(16, 10, { dtype });
  }

  forward(x: Tensor): Tensor {
    return this.net2(this.relu(this.net1(x)));
  }
}

class TwoMlps extends nn.Module {
  mlp_0 = new Mlp();
  mlp_1 = new Mlp();

  forward(x: Tensor): Tensor {
    return this.mlp_1(this.mlp_0(x));
  }
}

const tensorParallel = (): ParallelizePlan => ({
  'mlp_0.net1': ColwiseParallel(),
  'mlp_0.net2': RowwiseParallel(),
  'mlp_1.net1': ColwiseParallel(),
  'mlp_1.net2': RowwiseParallel(),
});
const sequenceParallel = (): ParallelizePlan => ({
  mlp_0: PrepareModuleInput({ inputLayouts: Shard(0), desiredInputLayouts: Replicate() }),
  'mlp_0.net1': ColwiseParallel(),
  'mlp_0.net2': RowwiseParallel({ outputLayouts: Shard(0) }),
  'mlp_1.net1': ColwiseParallel({ inputLayouts: Shard(0) }),
  'mlp_1.net2': RowwiseParallel(),
  mlp_1: PrepareModuleOutput({ outputLayouts: Replicate(), desiredOutputLayouts: Shard(0) }),
});

const meshOf = (ranks: number): DeviceMesh =>
  initDeviceMesh('cpu', [ranks], { meshDimNames: ['tp'] });

/** What was warned of in `fn`. */
function warningsOf(fn: () => void): string[] {
  const { emitWarning } = process;
  const texts: string[] = [];
  process.emitWarning = ((text: string) => void texts.push(text)) as typeof process.emitWarning;
  try {
    fn();
  } finally {
    process.emitWarning = emitWarning;
  }
  return texts;
}

describe('parallelizeModule', () => {
  it(
    'runs two MLPs with one all-reduce each in forward and in backward',
    withRanks(4, async () => {
      const [model, alone] = [new TwoMlps(), new TwoMlps()];
      parallelizeModule(model, meshOf(4), tensorParallel());
      const x = rand([20, 10], { dtype });
      const [a, b] = [x.clone().requiresGrad_(), x.clone().requiresGrad_()];
      let out = null as unknown as Tensor;
      assert.deepEqual(
        commCounts(() => {
          out = model(a);
        }),
        { allReduce: 2 },
      );
      assert.deepEqual(
        commCounts(() => out.sum().backward()),
        { allReduce: 2 },
      );
      const whole = alone(b);
      whole.sum().backward();
      assert.equal(placementsOf(out), 'plain');
      await assertClose(out, whole, 'the result');
      await assertAlike(model, alone, 'gradients');
      await assertClose(a.grad as Tensor, b.grad as Tensor, 'the gradient of the input');
    }),
  );

  it(
    'runs two MLPs on sharded rows with all-gathers and reduce-scatters instead',
    withRanks(4, async (rank) => {
      const [model, alone] = [new TwoMlps(), new TwoMlps()];
      parallelizeModule(model, meshOf(4), sequenceParallel());
      const x = rand([20, 10], { dtype });
      const part = x
        .narrow(0, 5 * rank, 5)
        .clone()
        .requiresGrad_();
      let out = null as unknown as Tensor;
      assert.deepEqual(
        commCounts(() => {
          out = model(part);
        }),
        { allGather: 2, reduceScatter: 1, allReduce: 1 },
      );
      assert.deepEqual(
        commCounts(() => out.sum().backward()),
        { reduceScatter: 2, allGather: 2 },
      );
      const b = x.requiresGrad_();
      const whole = alone(b);
      whole.sum().backward();
      await assertClose(out, whole.narrow(0, 5 * rank, 5), 'the result');
      await assertAlike(model, alone, 'gradients');
      await assertClose(
        part.grad as Tensor,
        (b.grad as Tensor).narrow(0, 5 * rank, 5),
        'the gradient of the input',
      );
    }),
  );

  it(
    'matches wildcards within each name; one style may serve many modules, and the root',
    withRanks(2, async () => {
      const mesh = meshOf(2);
      const model = parallelizeModule(new TwoMlps(), mesh, {
        'mlp_*.net1': ColwiseParallel(),
        '*.*2': RowwiseParallel(),
      });
      assert.deepEqual(
        [...model.namedParameters()].map(([name, p]) => `${name} ${placementsOf(p)}`),
        ['mlp_0', 'mlp_1'].flatMap((mlp) => [
          `${mlp}.net1.weight [Shard(0)]`,
          `${mlp}.net1.bias [Shard(0)]`,
          `${mlp}.net2.weight [Shard(1)]`,
          `${mlp}.net2.bias [Replicate()]`,
        ]),
      );
      assert.equal(
        placementsOf(
          parallelizeModule(new nn.Linear(2, 2), mesh, { '': ColwiseParallel() }).weight,
        ),
        '[Shard(0)]',
      );
    }),
  );

  it(
    'warns about a path that matches nothing, and lists existing names, the most similar first',
    withRanks(1, async () => {
      const mesh = meshOf(1);
      const texts = warningsOf(
        () =>
          void parallelizeModule(new TwoMlps(), mesh, {
            'mlp_0.net_2': ColwiseParallel(),
            'mlp_*.relu.x': ColwiseParallel(),
          }),
      );
      assert.deepEqual(texts, [
        'parallelizeModule: "mlp_0.net_2" in the plan matches no module, so it does nothing: there is no "net_2"; "mlp_0" has net2, net1, relu.',
        'parallelizeModule: "mlp_*.relu.x" in the plan matches no module, so it does nothing: there is no "x"; the 2 modules before it, such as "mlp_0.relu", has no modules below it.',
      ]);
    }),
  );

  it(
    'takes the values of the first rank, or with srcDataRank null of each rank, also in a transformer',
    withRanks(2, async (rank) => {
      const mesh = meshOf(2);
      manualSeed(rank);
      const [sent, own] = [new nn.Linear(4, 4, { dtype }), new nn.Linear(4, 4, { dtype })];
      const values = own.weight.detach().clone();
      parallelizeModule(sent, mesh, ColwiseParallel());
      manualSeed(0);
      await assertClose(sent.weight, new nn.Linear(4, 4, { dtype }).weight, 'the values of rank 0');
      parallelizeModule(own, mesh, ColwiseParallel(), { srcDataRank: null });
      await assertClose(own.weight.toLocal(), values.narrow(0, 2 * rank, 2), 'own values');
      manualSeed(3);
      const layer = new nn.TransformerEncoderLayer(8, 2, {
        dimFeedforward: 12,
        dropout: 0,
        batchFirst: true,
        dtype,
      });
      const x = rand([2, 5, 8], { dtype });
      const whole = layer(x);
      parallelizeModule(layer, mesh, {
        linear1: ColwiseParallel(),
        linear2: RowwiseParallel(),
        'self_attn.out_proj': RowwiseParallel({ inputLayouts: Replicate() }),
      });
      assert.deepEqual(
        commCounts(() => layer(x)),
        { allReduce: 2 },
      );
      await assertClose(layer(x), whole, 'the layer');
    }),
  );

  it(
    'keeps shared parameters shared, and refuses styles that disagree about them',
    withRanks(2, async () => {
      const mesh = meshOf(2);
      const tied = (): nn.ModuleDict => {
        const model = new nn.ModuleDict({
          tokens: new nn.Embedding(6, 4, { dtype }),
          head: new nn.Linear(4, 6, { bias: false, dtype }),
        });
        (model.get('head') as nn.Linear).weight = (
          model.get('tokens') as unknown as nn.Embedding
        ).weight;
        return model;
      };
      const good = parallelizeModule(tied(), mesh, {
        tokens: RowwiseParallel(),
        head: ColwiseParallel(),
      });
      assert.equal(
        (good.get('head') as nn.Linear).weight,
        (good.get('tokens') as unknown as nn.Embedding).weight,
      );
      assert.deepEqual(
        [...good.parameters()].map((p) => placementsOf(p)),
        ['[Shard(0)]'],
      );
      assert.throws(
        () =>
          parallelizeModule(tied(), mesh, { tokens: ColwiseParallel(), head: ColwiseParallel() }),
        (error) =>
          error instanceof ShardingError &&
          /ColwiseParallel: expected Linear\.weight to be a plain tensor, or placed as \[Shard\(0\)\] on .*, got .*\[Shard\(1\)\]\. A parameter that two modules share/.test(
            error.message,
          ),
      );
    }),
  );

  it(
    'keeps parameter objects, so an existing optimizer works unless it has stepped',
    withRanks(2, async () => {
      const [model, alone] = [new Mlp(), new Mlp()];
      const [sgd, other] = [model, alone].map(
        (m) => new optim.AdamW(m.parameters(), { lr: 0.1 }),
      ) as [optim.AdamW, optim.AdamW];
      parallelizeModule(model, meshOf(2), { net1: ColwiseParallel(), net2: RowwiseParallel() });
      const x = rand([3, 10], { dtype });
      for (let step = 0; step < 2; step++) {
        for (const [m, optimizer] of [
          [model, sgd],
          [alone, other],
        ] as const) {
          m(x).square().sum().backward();
          optimizer.step();
          optimizer.zeroGrad();
        }
        await assertAlike(model, alone, 'values');
      }
      assert.equal(
        placementsOf(sgd.state.get(model.net1.weight)?.['exp_avg'] as Tensor),
        '[Shard(0)]',
      );
      const stepped = new Mlp();
      const late = new optim.AdamW(stepped.parameters());
      stepped(x).sum().backward();
      late.step();
      parallelizeModule(stepped, meshOf(2), { net1: ColwiseParallel(), net2: RowwiseParallel() });
      assert.equal(stepped.net1.weight.grad, null);
      stepped(x).sum().backward();
      assert.throws(() => late.step(), /expected distributed tensors, got a plain one/);
    }),
  );

  it(
    'refuses meshes of several dims, two styles for one module, and a value that is not a style',
    withRanks(4, async () => {
      const mesh = initDeviceMesh('cpu', [2, 2], { meshDimNames: ['dp', 'tp'] });
      assert.throws(
        () => parallelizeModule(new Mlp(), mesh, {}),
        /expected a mesh of one dim, got DeviceMesh\(cpu, dp: 2, tp: 2\)\. Pass a slice: mesh\.get\('tp'\)\./,
      );
      const tp = mesh.get('tp');
      assert.throws(
        () =>
          parallelizeModule(new Mlp(), tp, { net1: ColwiseParallel(), 'net*': RowwiseParallel() }),
        /Linear at "net1" has a style already \(ColwiseParallel\) and would get another \(RowwiseParallel\)/,
      );
      const once = parallelizeModule(new Mlp(), tp, { net1: ColwiseParallel() });
      assert.throws(
        () => parallelizeModule(once, tp, { net1: ColwiseParallel() }),
        /has a style already/,
      );
      assert.throws(
        () => parallelizeModule(new Mlp(), tp, { net1: 'colwise' } as never),
        /expected the plan to have a style at "net1"/,
      );
      assert.throws(
        () => parallelizeModule({} as never, tp, {}),
        /expected module to be an nn\.Module/,
      );
      assert.throws(
        () => parallelizeModule(new Mlp(), null as never, {}),
        /expected mesh to be a DeviceMesh/,
      );
    }),
  );

  it(
    'names the module in errors of mixed tensors, with advice',
    withRanks(2, async () => {
      const mesh = meshOf(2);
      const model = parallelizeModule(new TwoMlps(), mesh, {
        mlp_0: PrepareModuleInput({ inputLayouts: Replicate(), desiredInputLayouts: Replicate() }),
      });
      assert.throws(
        () => model(rand([2, 10], { dtype })),
        /expected distributed tensors, got a plain one[\s\S]*distributeTensor[\s\S]*in the module TwoMlps at mlp_0\.net1 \(Linear\)/,
      );
    }),
  );
});

describe('distributeModule', () => {
  it(
    'replicates parameters that partitionFn skips, and hooks inputs and outputs, on meshes of two dims too',
    withRanks(4, async (rank) => {
      const mesh = initDeviceMesh('cpu', [2, 2], { meshDimNames: ['dp', 'tp'] });
      const [model, alone] = [new TwoMlps(), new TwoMlps()];
      const names: string[] = [];
      distributeModule(model, mesh, {
        partitionFn: (name, module) => {
          names.push(name);
          if (!(module instanceof nn.Linear)) return;
          const cut = Shard(name.endsWith('net1') ? 0 : 1);
          module.weight.data = distributeTensor(module.weight.detach(), mesh, [Replicate(), cut]);
        },
        inputFn: (_, [x]) => [DTensor.fromLocal(x as Tensor, mesh, [Shard(0), Replicate()])],
        outputFn: (_, out) => (out as Tensor).redistribute([Shard(0), Replicate()]).toLocal(),
      });
      assert.deepEqual(names.slice(0, 3), ['', 'mlp_0', 'mlp_0.net1']);
      assert.equal(placementsOf(model.mlp_0.net1.bias), '[Replicate(), Replicate()]');
      const x = rand([6, 10], { dtype });
      const rows = x.narrow(0, 3 * Math.floor(rank / 2), 3);
      const out = model(rows);
      await assertClose(out, alone(x).narrow(0, 3 * Math.floor(rank / 2), 3), 'the result');
      out.square().sum().backward();
      alone(x).square().sum().backward();
      await assertAlike(model, alone, 'gradients');
      assert.throws(
        () => distributeModule(model, mesh, { partitionFn: 'x' } as never),
        /expected partitionFn to be a function/,
      );
    }),
  );

  it(
    'works with SequenceParallel on uneven sequences that stay distributed between layers',
    withRanks(3, async () => {
      const mesh = meshOf(3);
      manualSeed(2);
      const make = (): nn.Sequential =>
        new nn.Sequential(new nn.LayerNorm(4, { dtype }), new nn.LayerNorm(4, { dtype }));
      const model = parallelizeModule(make(), mesh, { '*': SequenceParallel() });
      const x = rand([2, 7, 4], { dtype });
      const out = model(DTensor.fromLocal(x, mesh));
      assert.equal(placementsOf(out), '[Shard(1)]');
      await assertClose(out, make()(x), 'the result');
      assert.ok(out instanceof Tensor);
    }),
  );
});
