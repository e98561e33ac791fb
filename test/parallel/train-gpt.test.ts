/**
 * A GPT trained on several ranks: after every step the losses and parameters are those of one rank.
 */
import assert from 'node:assert/strict';
import {
  allReduce,
  CommDebugMode,
  type DeviceMesh,
  DTensor,
  distributeModule,
  distributeTensor,
  initDeviceMesh,
  lossParallel,
  type Placement,
  parallelizeModule,
  Replicate,
  Shard,
} from '../../lib/distributed.js';
import { crossEntropy, nn, noGrad, optim, type Tensor } from '../../lib/index.js';
import { withRanks } from '../../lib/testing/index.js';
import { assertAlike, assertClose, commCounts, placementsOf } from './compare.js';
import {
  asRows,
  batchOf,
  SmallGpt,
  sequenceParallelPlan,
  tensorParallelPlan,
} from './small-gpt.js';

const STEPS = 5;
const BATCH = 4;
const TOLERANCE = 1e-9;

type LossOf = (model: SmallGpt, batch: [Tensor, Tensor]) => Tensor;
const lossOf: LossOf = (model, [inputs, targets]) =>
  crossEntropy(...asRows(model(inputs), targets));
const parallelLossOf: LossOf = (model, batch) => lossParallel(() => lossOf(model, batch));

const adam = (model: SmallGpt): optim.AdamW => new optim.AdamW(model.parameters(), { lr: 1e-2 });

interface Trained {
  model: SmallGpt;
  /** Of this rank's share of the batch. */
  loss: LossOf;
  share?: (t: Tensor) => Tensor;
  /** Makes gradients of a share those of the batch, where the loss is of a share. */
  gradients?: () => void;
}

/** Trains beside a model on one rank, and compares after each step. */
async function compareTraining({
  model,
  loss,
  share = (t) => t,
  gradients,
}: Trained): Promise<void> {
  const alone = SmallGpt.seeded();
  const [optimizer, other] = [adam(model), adam(alone)];
  for (let step = 0; step < STEPS; step++) {
    const batch = batchOf(step, BATCH);
    const expected = lossOf(alone, batch);
    expected.backward();
    const value = loss(model, batch.map(share) as [Tensor, Tensor]);
    value.backward();
    gradients?.();
    if (gradients === undefined)
      await assertClose(value, expected, `the loss of step ${step}`, TOLERANCE);
    for (const each of [model, alone]) nn.utils.clipGradNorm_(each.parameters(), 0.5);
    await assertAlike(model, alone, 'gradients', TOLERANCE);
    for (const each of [optimizer, other]) {
      each.step();
      each.zeroGrad();
    }
    await assertAlike(model, alone, 'values', TOLERANCE);
  }
}

/** Mean of the gradients of a mesh dim's ranks, in place. */
function averageGradients(model: nn.AnyModule, mesh: DeviceMesh): void {
  noGrad(() => {
    for (const { grad } of model.parameters())
      if (grad !== null)
        allReduce(grad instanceof DTensor ? grad.toLocal() : grad, {
          op: 'avg',
          group: mesh.getGroup(),
        });
  });
}

const meshOf = (ranks: number): DeviceMesh =>
  initDeviceMesh('cpu', [ranks], { meshDimNames: ['tp'] });

describe('training a GPT', () => {
  for (const ranks of [2, 4]) {
    it(
      `with tensor parallelism on ${ranks} ranks equals training on one`,
      withRanks(ranks, async () => {
        const model = parallelizeModule(SmallGpt.seeded(), meshOf(ranks), tensorParallelPlan());
        assert.equal(model.head.weight, model.tokens.weight);
        await compareTraining({ model, loss: lossOf });
      }),
    );
  }

  it(
    'with sequence and loss parallelism equals training on one rank',
    withRanks(2, async () => {
      const model = parallelizeModule(SmallGpt.seeded(), meshOf(2), sequenceParallelPlan());
      await compareTraining({ model, loss: parallelLossOf });
    }),
  );

  it(
    'with tensor parallelism in data parallel groups equals training on one rank',
    withRanks(4, async (rank) => {
      const mesh = initDeviceMesh('cpu', [2, 2], { meshDimNames: ['dp', 'tp'] });
      const model = parallelizeModule(SmallGpt.seeded(), mesh.get('tp'), sequenceParallelPlan());
      const half = (t: Tensor): Tensor => t.chunk(2)[Math.floor(rank / 2)] as Tensor;
      await compareTraining({
        model,
        loss: parallelLossOf,
        share: half,
        gradients: () => averageGradients(model, mesh.get('dp')),
      });
    }),
  );

  it(
    'with tensors distributed on a mesh of two dims, without a plan, equals training on one rank',
    withRanks(4, async () => {
      const mesh = initDeviceMesh('cpu', [2, 2], { meshDimNames: ['dp', 'tp'] });
      const cuts: Record<string, [weight: Placement, bias: Placement]> = {
        wo: [Shard(1), Replicate()],
        down: [Shard(1), Replicate()],
      };
      const model = distributeModule(SmallGpt.seeded(), mesh, {
        partitionFn: (name, module) => {
          if (!(module instanceof nn.Linear) || module.weight instanceof DTensor) return;
          const [weight, bias] = cuts[name.split('.').at(-1) as string] ?? [Shard(0), Shard(0)];
          module.weight.data = distributeTensor(module.weight.detach(), mesh, [
            Replicate(),
            weight,
          ]);
          if (module.bias !== null)
            module.bias.data = distributeTensor(module.bias.detach(), mesh, [Replicate(), bias]);
        },
      });
      assert.equal(placementsOf(model.tokens.weight), '[Replicate(), Shard(0)]');
      const rows = (t: Tensor): Tensor => distributeTensor(t, mesh, [Shard(0), Replicate()]);
      const loss: LossOf = (m, batch) => lossOf(m, batch);
      await compareTraining({ model, loss, share: rows });
    }),
  );

  it(
    'communicates two reductions for each block in forward and two in backward',
    withRanks(2, async () => {
      const mesh = meshOf(2);
      const batch = batchOf(0, BATCH);
      const counts = (model: SmallGpt, loss: LossOf): [object, object] => {
        let value = null as unknown as Tensor;
        return [
          commCounts(() => {
            value = loss(model, batch);
          }),
          commCounts(() => value.backward()),
        ];
      };
      const tp = parallelizeModule(SmallGpt.seeded(), mesh, tensorParallelPlan());
      // Tokens and two of each block; the logits. Back: two of each block, and the input of the
      // output layer.
      assert.deepEqual(counts(tp, lossOf), [
        { allReduce: 1 + 2 * 2, allGather: 1 },
        { allReduce: 2 * 2 + 1 },
      ]);
      const sp = parallelizeModule(SmallGpt.seeded(), mesh, sequenceParallelPlan());
      assert.deepEqual(counts(sp, parallelLossOf), [
        { reduceScatter: 1 + 2 * 2, allGather: 2 * 2 + 1, allReduce: 2 },
        // The all-reduces are those of the weights and biases of five norms.
        { reduceScatter: 2 * 2 + 1, allGather: 2 * 2 + 2, allReduce: 2 * 5 },
      ]);
      const block = new CommDebugMode();
      block.run(() => lossOf(tp, batch).backward());
      const ofBlock = block.events.filter(({ modulePath }) => modulePath?.startsWith('blocks.0'));
      assert.deepEqual(
        ofBlock.map(({ kind, phase, modulePath, meshDim }) => [kind, phase, modulePath, meshDim]),
        [
          ['allReduce', 'forward', 'blocks.0.attention.wo', 'tp'],
          ['allReduce', 'forward', 'blocks.0.mlp.down', 'tp'],
          ['allReduce', 'backward', 'blocks.0.mlp.up', 'tp'],
          ['allReduce', 'backward', 'blocks.0.attention', 'tp'],
        ],
      );
    }),
  );
});
