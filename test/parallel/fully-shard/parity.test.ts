/** A sharded model trains as one device does, whatever the number of ranks. */
import assert from 'node:assert/strict';
import { fullyShard } from '../../../lib/distributed.js';
import { float64, manualSeed, nn, optim, randn, type Tensor } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';

class Net extends nn.Module {
  up = new nn.Linear(6, 10);
  down = new nn.Linear(10, 3);
  norm = new nn.LayerNorm(3);
  forward(x: Tensor): Tensor {
    return this.norm(this.down(this.up(x).relu()));
  }
}

class Model extends nn.Module {
  first = new Net();
  second = new nn.Linear(3, 6);
  third = new Net();
  forward(x: Tensor): Tensor {
    return this.third(this.second(this.first(x)).relu());
  }
}

const STEPS = 10;

/** Losses and parameters of the whole batch on one device. */
function oneDevice(batch: number): { losses: number[]; parameters: Map<string, number[]> } {
  manualSeed(0);
  const model = new Model().double();
  const adam = new optim.AdamW(model.parameters(), { lr: 0.01 });
  const losses: number[] = [];
  for (let step = 0; step < STEPS; step++) {
    manualSeed(step + 1);
    const x = randn([batch, 6], { dtype: float64 });
    const loss = model(x).square().mean();
    loss.backward();
    adam.step();
    adam.zeroGrad();
    losses.push(loss.item());
  }
  const parameters = new Map(
    [...model.namedParameters()].map(([name, p]) => [
      name,
      p.detach().reshape([-1]).tolist() as number[],
    ]),
  );
  return { losses, parameters };
}

function assertClose(actual: readonly number[], expected: readonly number[], what: string): void {
  assert.equal(actual.length, expected.length, what);
  actual.forEach((value, i) => {
    const wanted = expected[i] as number;
    assert.ok(
      Math.abs(value - wanted) <= 1e-9 + 1e-9 * Math.abs(wanted),
      `${what}[${i}]: ${value}, expected ${wanted}`,
    );
  });
}

describe('fullyShard', () => {
  for (const ranks of [1, 2, 3, 4]) {
    it(
      `trains ${ranks} ranks as one device trains the whole batch`,
      withRanks(ranks, async (rank) => {
        const batch = 12;
        const expected = oneDevice(batch);
        manualSeed(0);
        const model = new Model().double();
        fullyShard(model.first);
        fullyShard(model.third);
        fullyShard(model);
        const adam = new optim.AdamW(model.parameters(), { lr: 0.01 });
        for (let step = 0; step < STEPS; step++) {
          manualSeed(step + 1);
          const x = randn([batch, 6], { dtype: float64 }).narrow(
            0,
            (rank * batch) / ranks,
            batch / ranks,
          );
          const loss = model(x).square().mean();
          loss.backward();
          adam.step();
          adam.zeroGrad();
        }
        for (const [name, p] of model.namedParameters()) {
          const whole = await (p as Tensor & { fullTensor(): Tensor })
            .fullTensor()
            .detach()
            .reshape([-1])
            .read();
          assertClose([...whole] as number[], expected.parameters.get(name) as number[], name);
        }
      }),
    );
  }
});
