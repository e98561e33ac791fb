/**
 * The largest world of one process: a GPT trained by 64 ranks has the parameters of one trained by
 * one.
 */
import assert from 'node:assert/strict';
import {
  allReduce,
  type DeviceMesh,
  DTensor,
  distributeTensor,
  initDeviceMesh,
  launch,
  parallelizeModule,
} from '../../lib/distributed.js';
import { crossEntropy, float64, noGrad, optim, type Tensor, tensor } from '../../lib/index.js';
import { asRows, batchOf, SmallGpt, tensorParallelPlan } from './small-gpt.js';

const [DP, TP, STEPS, TOLERANCE] = [16, 4, 2, 1e-14];

type Nested = ReturnType<Tensor['tolist']>;
type Losses = number[];

const lossOf = (model: SmallGpt, [inputs, targets]: [Tensor, Tensor]): Tensor =>
  crossEntropy(...asRows(model(inputs), targets));
/**
 * Not Adam: the gradient of the keys' biases is 0 but for rounding, and Adam makes steps of that.
 */
const optimizerOf = (model: SmallGpt): optim.SGD =>
  new optim.SGD(model.parameters(), { lr: 0.1, momentum: 0.9 });

function trainedAlone(): { losses: Losses; parameters: Map<string, Nested> } {
  const model = SmallGpt.seeded();
  const optimizer = optimizerOf(model);
  const losses: Losses = [];
  for (let step = 0; step < STEPS; step++) {
    const loss = lossOf(model, batchOf(step, DP));
    loss.backward();
    optimizer.step();
    optimizer.zeroGrad();
    losses.push(loss.item() as number);
  }
  return {
    losses,
    parameters: new Map([...model.namedParameters()].map(([name, p]) => [name, p.tolist()])),
  };
}

/** Each dp rank has a row of the batch, so means of means are means. */
async function trainShared(mesh: DeviceMesh): Promise<{ model: SmallGpt; losses: Losses }> {
  const model = parallelizeModule(SmallGpt.seeded(), mesh.get('tp'), tensorParallelPlan());
  const optimizer = optimizerOf(model);
  const dp = { op: 'avg', group: mesh.getGroup('dp') } as const;
  const losses: Tensor[] = [];
  for (let step = 0; step < STEPS; step++) {
    const row = mesh.getLocalRank('dp');
    const loss = lossOf(
      model,
      batchOf(step, DP).map((t) => t.narrow(0, row, 1)) as [Tensor, Tensor],
    );
    loss.backward();
    const whole = loss.detach().clone();
    allReduce(whole, dp);
    noGrad(() => {
      for (const { grad } of model.parameters())
        if (grad !== null) allReduce(grad instanceof DTensor ? grad.toLocal() : grad, dp);
    });
    optimizer.step();
    optimizer.zeroGrad();
    losses.push(whole);
  }
  return { model, losses: await Promise.all(losses.map((loss) => loss.itemAsync())) };
}

/** This rank's part of a parameter, and what it should be. */
function partsOf(parameter: Tensor, expected: Nested): [Tensor, Tensor] {
  const whole = tensor(expected as number[], { dtype: float64 });
  if (!(parameter instanceof DTensor)) return [parameter.detach(), whole];
  return [
    parameter.detach().toLocal(),
    distributeTensor(whole, parameter.deviceMesh, parameter.placements, {
      srcDataRank: null,
    }).toLocal(),
  ];
}

describe('64 ranks in one process', () => {
  it('train a GPT to the losses and parameters of one rank', async function () {
    this.timeout(15_000); // four seconds on two idle cores
    const alone = trainedAlone();
    await launch(DP * TP, async () => {
      const mesh = initDeviceMesh('cpu', [DP, TP], { meshDimNames: ['dp', 'tp'] });
      const { model, losses } = await trainShared(mesh);
      losses.forEach((loss, step) => {
        assert.ok(
          Math.abs(loss - (alone.losses[step] as number)) <= TOLERANCE,
          `the loss of step ${step}: ${loss}, alone ${alone.losses[step]}`,
        );
      });
      for (const [name, parameter] of model.namedParameters()) {
        const [own, expected] = partsOf(parameter, alone.parameters.get(name) as Nested);
        if (own.numel() === 0) continue;
        const difference = await own.sub(expected).abs().amax().itemAsync();
        assert.ok(difference <= TOLERANCE, `${name} differs by ${difference}`);
      }
    });
  });
});
