/** A run in one file: saved and loaded, it goes on as if it had not stopped. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, statSync, truncateSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { DTensor, initDeviceMesh, launch, Replicate } from '../../lib/distributed.js';
import {
  ArgumentError,
  amp,
  CheckpointError,
  Generator,
  getRngState,
  loadCheckpoint,
  manualSeed,
  nn,
  ones,
  optim,
  rand,
  type Stateful,
  saveCheckpoint,
  saveSafetensors,
  Tensor,
  zeros,
} from '../../lib/index.js';

let folder: string;
let file: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'shardwise-run-'));
  file = path.join(folder, 'run.safetensors');
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

/** A run whose steps draw their batches. */
function makeRun(seed: number) {
  manualSeed(seed);
  const model = new nn.Sequential(new nn.Linear(3, 4), new nn.BatchNorm1d(4), new nn.Linear(4, 1));
  const optimizer = new optim.AdamW(model.parameters(), { lr: 0.1 });
  const state = {
    model,
    optimizer,
    schedule: new optim.lrScheduler.StepLR(optimizer, 2, 0.5),
    scaler: new amp.GradScaler(),
    average: zeros([2]),
    data: { epoch: 0, best: Infinity, seen: ['a'] },
    step: 0,
  };
  const train = (): number => {
    const loss = (model(rand([8, 3])) as Tensor).square().mean();
    loss.backward();
    optimizer.step();
    optimizer.zeroGrad();
    state.schedule.step();
    state.step++;
    state.data.best = loss.item() as number;
    state.average.add_(1);
    return state.data.best;
  };
  return { state, train };
}

/** An object of the program with a state: a list and a tensor. */
function makeOwn(value: number) {
  const own = {
    values: [value, value],
    sum: ones([2]).mul(value),
    stateDict: () => ({ values: own.values, sum: own.sum }),
    loadStateDict(state: { values: number[]; sum: Tensor }) {
      own.values.splice(0, own.values.length, ...state.values);
      own.sum.copy_(state.sum);
    },
  };
  return own;
}

/** All values of a state, and of random numbers. */
async function everything(state: Record<string, unknown>): Promise<unknown> {
  const values = async (value: unknown): Promise<unknown> => {
    if (value instanceof Tensor) return value.tolist();
    const { stateDict } = (value ?? {}) as Partial<Stateful>;
    if (stateDict !== undefined) return values(stateDict.call(value));
    if (typeof value !== 'object' || value === null) return value;
    const entries = Object.entries(value).map(async ([name, each]) => [name, await values(each)]);
    return Object.fromEntries(await Promise.all(entries));
  };
  return [await values(state), getRngState()];
}

describe('a run that is saved to a file', () => {
  it('goes on after loading with the same losses, rates and random numbers', async () => {
    const first = makeRun(1);
    for (let i = 0; i < 3; i++) first.train();
    await saveCheckpoint(file, first.state);
    const expected = [first.train(), first.train()];
    const second = makeRun(2);
    const loaded = await loadCheckpoint(file, second.state);
    assert.equal(loaded, second.state);
    assert.equal(loaded.step, 3);
    assert.deepEqual(loaded.average.tolist(), [3, 3]);
    assert.deepEqual(loaded.data.seen, ['a']);
    assert.deepEqual([second.train(), second.train()], expected);
  });

  it('loads into another state with strict: false, and leaves random numbers with rng: false', async () => {
    await saveCheckpoint(file, { a: ones([2]), step: 7 });
    manualSeed(5);
    const expected = rand([2]).tolist();
    manualSeed(5);
    const state = await loadCheckpoint(file, { step: 0, b: 1 }, { strict: false, rng: false });
    assert.deepEqual(state, { step: 7, b: 1 });
    assert.deepEqual(rand([2]).tolist(), expected);
  });

  it("keeps infinities, bigints, lists of modules and generators of one's own", async () => {
    const generator = new Generator();
    generator.manualSeed(3);
    const nets = [new nn.Linear(1, 1), new nn.Linear(1, 1)];
    await saveCheckpoint(file, { nets, generator, low: -Infinity, id: 2n ** 60n });
    const expected = rand([2], { generator }).tolist();
    const other = { nets: [new nn.Linear(1, 1), new nn.Linear(1, 1)], generator: new Generator() };
    const loaded = await loadCheckpoint(file, { ...other, low: 0, id: 0n });
    assert.deepEqual([loaded.low, loaded.id], [-Infinity, 2n ** 60n]);
    assert.deepEqual(rand([2], { generator: other.generator }).tolist(), expected);
    assert.deepEqual(other.nets[1]?.weight.tolist(), nets[1]?.weight.tolist());
  });
});

describe('a checkpoint that does not fit', () => {
  it('is refused with the names that differ, before anything changes', async () => {
    const { state, train } = makeRun(1);
    train();
    await saveCheckpoint(file, { model: state.model, extra: 1 });
    const fresh = makeRun(2).state;
    const before = fresh.model.stateDict()['0.weight']?.tolist();
    await assert.rejects(
      loadCheckpoint(file, { model: fresh.model, step: 0 }),
      (error: Error) =>
        error instanceof CheckpointError &&
        /missing in the file: "step"; missing in the state: "extra"/.test(error.message),
    );
    await saveCheckpoint(file, { model: state.model, average: ones([3]) });
    await assert.rejects(
      loadCheckpoint(file, { model: fresh.model, average: zeros([2]) }),
      /"average" of the state is a tensor of shape \[2\], and the checkpoint has \[3\]/,
    );
    assert.deepEqual(fresh.model.stateDict()['0.weight']?.tolist(), before);
  });

  it('leaves all as it was if any of its objects refuses its state', async () => {
    const { state: saved, train } = makeRun(1);
    train();
    const disabled = new amp.GradScaler({ enabled: false });
    for (const change of [
      { scaler: disabled },
      { optimizer: new optim.SGD([saved.average], { lr: 1 }) },
      { schedule: new optim.lrScheduler.CosineAnnealingLR(saved.optimizer, 5) },
      { model: new nn.Linear(3, 4) },
      { own: { ...makeOwn(1), stateDict: () => ({ values: [1], sum: ones([3]) }) } },
    ]) {
      await saveCheckpoint(file, { ...saved, first: makeOwn(1), own: makeOwn(1), ...change });
      const run = makeRun(2);
      run.train();
      const state = { ...run.state, first: makeOwn(2), own: makeOwn(2) };
      const before = await everything(state);
      await assert.rejects(loadCheckpoint(file, state));
      assert.deepEqual(await everything(state), before, Object.keys(change)[0]);
    }
  });

  it('leaves all as it was if a hook of the module throws after loading', async () => {
    const first = makeRun(1);
    first.train();
    await saveCheckpoint(file, first.state);
    const { state, train } = makeRun(2);
    train();
    state.model.registerLoadStateDictPostHook(() => {
      throw new Error('no');
    });
    const before = await everything(state);
    await assert.rejects(loadCheckpoint(file, state), /no/);
    assert.deepEqual(await everything(state), before);
  });

  it('leaves all as it was if the file ends early', async () => {
    const first = makeRun(1);
    await saveCheckpoint(file, first.state);
    truncateSync(file, statSync(file).size - 8);
    const { state, train } = makeRun(2);
    train();
    const before = await everything(state);
    await assert.rejects(loadCheckpoint(file, state), CheckpointError);
    assert.deepEqual(await everything(state), before);
  });

  it('is refused if it is a file of tensors alone', async () => {
    await saveSafetensors(file, { a: ones([1]) });
    await assert.rejects(loadCheckpoint(file, {}), /expected a file of saveCheckpoint/);
  });
});

describe('saveCheckpoint', () => {
  it('refuses what it cannot save, by its path', async () => {
    const bad = { nested: { fn: () => 1 } } as never;
    await assert.rejects(
      saveCheckpoint(file, bad),
      (error: Error) =>
        error instanceof ArgumentError && /"nested\.fn" of the state/.test(error.message),
    );
    await assert.rejects(saveCheckpoint(file, { a: { b: ones([1]) }, 'a.b': ones([1]) }), /twice/);
    await assert.rejects(saveCheckpoint(file, { a: zeros([1], { device: 'meta' }) }), /on meta/);
  });

  it('refuses a state that contains itself, by its path', async () => {
    const graph: Record<string, unknown> = { name: 'a' };
    graph['nodes'] = [1, { graph }];
    const refused = (state: unknown, message: RegExp) =>
      assert.rejects(
        saveCheckpoint(file, state as never),
        (error: Error) => error instanceof ArgumentError && message.test(error.message),
      );
    await refused({ graph }, /saveCheckpoint: "graph\.nodes\.1\.graph" .* is "graph" again/);
    const whole: Record<string, unknown> = {};
    whole['self'] = whole;
    await refused(whole, /"self" of the state is the state itself/);
    class Owner {
      readonly self = this;
    }
    await refused({ owner: new Owner() }, /"owner\.self" of the state is "owner" again/);
    const object = { stateDict: () => graph, loadStateDict: () => {} };
    await refused({ object }, /"object\.nodes\.1\.graph" of the state is "object" again/);
    await saveCheckpoint(file, { a: { shared: [1] }, b: [graph['name'] as string] });
  });

  it('refuses tensors of several ranks, and names distributedCheckpoint', async () => {
    await launch(2, async () => {
      const mesh = initDeviceMesh('cpu', [2]);
      const x = DTensor.fromLocal(ones([2]), mesh, [Replicate()]);
      await assert.rejects(saveCheckpoint(file, { x }), /distributedCheckpoint\.save/);
    });
  });
});

describe('the state of an optimizer that went through JSON', () => {
  it('is refused with the name of what to use', () => {
    const { state, train } = makeRun(1);
    train();
    const json = JSON.parse(JSON.stringify(state.optimizer.stateDict()));
    assert.throws(
      () => state.optimizer.loadStateDict(json),
      /saveCheckpoint\(file, \{ model, optimizer/,
    );
  });
});
