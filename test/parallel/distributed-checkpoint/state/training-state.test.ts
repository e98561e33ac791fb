/** A run that is saved and loaded goes on as if it had not stopped, on any number of ranks. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import {
  type CheckpointState,
  type DTensor,
  distributedCheckpoint,
  FullyShardedDataParallel,
  fullyShard,
  launch,
} from '../../../../lib/distributed.js';
import {
  amp,
  CheckpointError,
  float64,
  getRngState,
  manualSeed,
  nn,
  ones,
  optim,
  rand,
  randn,
  type Tensor,
  zeros,
} from '../../../../lib/index.js';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'shardwise-training-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

class Model extends nn.Module {
  first = new nn.Linear(6, 7);
  second = new nn.Linear(7, 5);
  forward(x: Tensor): Tensor {
    return this.second(this.first(x).relu());
  }
}

/** A run on this rank, made from one seed on all ranks. */
function makeRun(seed: number, sharded: boolean, make: (params: Tensor[]) => optim.Optimizer) {
  manualSeed(seed);
  const model = new Model().double();
  if (sharded) fullyShard(model);
  const optimizer = make([...model.parameters()]);
  const schedule = new optim.lrScheduler.StepLR(optimizer, 3, 0.5);
  const state: CheckpointState = {
    model,
    optimizer,
    schedule,
    rng: distributedCheckpoint.rng,
    data: { position: 0 },
    step: 0,
  };
  /** One step; the batch is drawn, so it depends on the random state. */
  const step = (): void => {
    const x = randn([4, 6], { dtype: float64 });
    model(x).square().mean().backward();
    optimizer.step();
    optimizer.zeroGrad();
    schedule.step();
    (state['data'] as { position: number }).position += 4;
    state['step'] = (state['step'] as number) + 1;
  };
  return { model, optimizer, schedule, state, step };
}

async function parametersOf(model: nn.AnyModule): Promise<number[]> {
  const values: number[] = [];
  for (const p of model.parameters()) {
    const whole =
      p.sharding === null ? p : (p as unknown as DTensor & { fullTensor(): Tensor }).fullTensor();
    values.push(...((await whole.detach().reshape([-1]).read()) as Float64Array));
  }
  return values;
}

const optimizers: Record<string, (params: Tensor[]) => optim.Optimizer> = {
  AdamW: (params) => new optim.AdamW(params, { lr: 0.01 }) as unknown as optim.Optimizer,
  'SGD with momentum': (params) =>
    new optim.SGD(params, { lr: 0.01, momentum: 0.9 }) as unknown as optim.Optimizer,
};

/** All ranks draw the same batch, so the mean of their gradients is that of one rank. */
async function tenSteps(make: (params: Tensor[]) => optim.Optimizer): Promise<number[]> {
  const [values] = await launch(1, async () => {
    const run = makeRun(1, false, make);
    for (let i = 0; i < 10; i++) run.step();
    return parametersOf(run.model);
  });
  return values as number[];
}

function assertClose(actual: readonly number[], expected: readonly number[]): void {
  assert.equal(actual.length, expected.length);
  actual.forEach((value, i) => {
    assert.ok(Math.abs(value - (expected[i] as number)) < 1e-11, `${i}: ${value}, ${expected[i]}`);
  });
}

describe('the state of a training run', () => {
  for (const [name, make] of Object.entries(optimizers))
    for (const [before, after] of [
      [4, 3],
      [1, 4],
      [3, 1],
      [2, 2],
    ] as const)
      it(`with ${name}: 5 steps on ${before} ranks and 5 on ${after} are 10 steps`, async () => {
        const expected = await tenSteps(make);
        await launch(before, async () => {
          const run = makeRun(1, true, make);
          for (let i = 0; i < 5; i++) run.step();
          await distributedCheckpoint.save(folder, run.state);
        });
        await launch(after, async () => {
          const run = makeRun(2, true, make); // other values and other random numbers
          const { missing, unexpected, bytes } = await distributedCheckpoint.load(
            folder,
            run.state,
          );
          assert.deepEqual([missing, unexpected], [[], []]);
          assert.ok(bytes > 0);
          assert.equal(run.state['step'], 5);
          assert.deepEqual(run.state['data'], { position: 20 });
          assert.equal(run.optimizer.paramGroups[0]?.['lr'], 0.005);
          for (let i = 0; i < 5; i++) run.step();
          assertClose(await parametersOf(run.model), expected);
        });
      });

  it('loads optimizer states in place where there are some', async () => {
    await launch(2, async () => {
      const make = optimizers['AdamW'] as (params: Tensor[]) => optim.Optimizer;
      const run = makeRun(1, true, make);
      run.step();
      await distributedCheckpoint.save(folder, run.state);
      const [first] = [...run.optimizer.state.values()];
      const before = first?.['exp_avg'] as Tensor;
      const values = [...(await before.read())];
      run.step();
      await distributedCheckpoint.load(folder, run.state);
      const [again] = [...run.optimizer.state.values()];
      assert.equal(again?.['exp_avg'], before);
      assert.deepEqual([...(await before.read())], values);
      assert.equal(again?.['step'], 1);
    });
  });

  it('stores optimizer states under the names of parameters', async () => {
    await launch(2, async () => {
      const run = makeRun(1, true, optimizers['AdamW'] as (params: Tensor[]) => optim.Optimizer);
      run.step();
      await distributedCheckpoint.save(folder, run.state);
    });
    const index = JSON.parse(readFileSync(path.join(folder, 'checkpoint.index.json'), 'utf8'));
    assert.ok('optimizer.state.model.first.weight.exp_avg' in index.tensors);
    assert.deepEqual(index.values['optimizer.param_groups.0'].value.params, [
      'model.first.weight',
      'model.first.bias',
      'model.second.weight',
      'model.second.bias',
    ]);
  });

  it('gives each rank its own random numbers back, and new ranks numbers of their own', async () => {
    const rng = distributedCheckpoint.rng;
    const saved = await launch(2, async (rank) => {
      manualSeed(rank + 10);
      rand([3]);
      await distributedCheckpoint.save(folder, { rng });
      return getRngState().seed;
    });
    const seeds = await launch(3, async () => {
      await distributedCheckpoint.load(folder, { rng });
      const state = getRngState();
      assert.equal(state.offset, 1);
      return state.seed;
    });
    assert.deepEqual(seeds.slice(0, 2), saved);
    assert.equal(new Set(seeds).size, 3);
  });

  it('loads a GradScaler and objects of the user, with tensors in their states', async () => {
    class Average {
      values = { mean: zeros([3]), counts: [1, 2] };
      stateDict() {
        return this.values;
      }
      loadStateDict(state: typeof this.values) {
        this.values = state;
      }
    }
    const scaler = new amp.GradScaler({ initScale: 8 });
    const average = new Average();
    average.values.mean.fill_(3);
    await distributedCheckpoint.save(folder, { scaler, average });
    const other = new amp.GradScaler({ initScale: 4 });
    const loaded = new Average();
    loaded.values.counts = [];
    await distributedCheckpoint.load(folder, { scaler: other, average: loaded });
    assert.equal(other.getScale(), 8);
    assert.deepEqual(loaded.values.mean.tolist(), [3, 3, 3]);
    assert.deepEqual(loaded.values.counts, [1, 2]);
  });

  it('stores a parameter that two layers share once, and loads it for both', async () => {
    class Tied extends nn.Module {
      a = new nn.Linear(3, 3, { bias: false });
      b = new nn.Linear(3, 3, { bias: false });
      constructor() {
        super();
        this.b.weight = this.a.weight;
      }
      forward(x: Tensor): Tensor {
        return this.b(this.a(x));
      }
    }
    const [saved, model] = [new Tied(), new Tied()];
    await distributedCheckpoint.save(folder, { model: saved });
    const { bytes } = await distributedCheckpoint.load(folder, { model });
    assert.equal(bytes, 36);
    assert.deepEqual(model.b.weight.tolist(), saved.a.weight.tolist());
  });

  it('refuses an optimizer whose parameters only partly belong to modules of the state', async () => {
    const [model, other] = [new nn.Linear(2, 2), new nn.Linear(2, 2)];
    const optimizer = new optim.SGD([...model.parameters(), ...other.parameters()], { lr: 0.1 });
    await assert.rejects(
      distributedCheckpoint.save(folder, { model, optimizer } as never),
      /2 of the 4 parameters of "optimizer" belong to no module/,
    );
  });

  it('has whole tensors of FullyShardedDataParallel, and refuses optimizers of flat parameters', async () => {
    manualSeed(4);
    const plain = new Model().double();
    const expected = await parametersOf(plain);
    await launch(2, async () => {
      manualSeed(4);
      const model = new FullyShardedDataParallel(new Model().double());
      await distributedCheckpoint.save(folder, { model });
      const optimizer = new optim.SGD(model.parameters(), { lr: 0.1 });
      await assert.rejects(
        distributedCheckpoint.save(folder, { optimizer, model } as never),
        /"optimizer" trains .*flat parameters of FullyShardedDataParallel/,
      );
    });
    const model = new Model().double();
    await distributedCheckpoint.load(folder, { model });
    assert.deepEqual(await parametersOf(model), expected);
    await launch(2, async () => {
      const other = new FullyShardedDataParallel(new Model().double());
      await distributedCheckpoint.load(folder, { model: other });
      const values = Object.values(other.stateDict());
      const read = await Promise.all(values.map(async (t) => [...(await t.read())]));
      assert.deepEqual(read.flat(), expected);
    });
  });

  it('refuses an optimizer of other parameters before it changes anything', async () => {
    const run = makeRun(1, false, optimizers['AdamW'] as (params: Tensor[]) => optim.Optimizer);
    await distributedCheckpoint.save(folder, run.state);
    const model = new Model().double();
    const before = await parametersOf(model);
    const optimizer = new optim.AdamW([model.first.weight], { lr: 0.1 });
    await assert.rejects(
      distributedCheckpoint.load(folder, { ...run.state, model, optimizer } as never),
      (error: unknown) =>
        error instanceof CheckpointError &&
        /"optimizer.param_groups.0" has other parameters .* "model.first.bias" is only in the checkpoint/.test(
          error.message,
        ),
    );
    assert.deepEqual(await parametersOf(model), before);
  });

  it('is refused where ranks name different folders', async () => {
    await assert.rejects(
      launch(2, async (rank) =>
        distributedCheckpoint.save(path.join(folder, `of-${rank}`), { t: ones([2]) }),
      ),
      /expected one folder on all ranks, got \S*of-0 on rank 0 and \S*of-1 on rank 1/,
    );
  });

  it('keeps the state of an optimizer that the checkpoint does not have', async () => {
    const model = new nn.Linear(2, 2);
    const adam = new optim.AdamW(model.parameters());
    model(ones([1, 2]))
      .sum()
      .backward();
    adam.step();
    await distributedCheckpoint.save(folder, { model });
    await distributedCheckpoint.load(folder, { model, optimizer: adam }, { strict: false });
    assert.equal(adam.state.size, 2);
  });
});
