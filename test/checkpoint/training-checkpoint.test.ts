/** A run in one file: saved and loaded, it goes on as if it had not stopped. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { DTensor, initDeviceMesh, launch, Replicate } from '../../lib/distributed.js';
import {
  ArgumentError,
  amp,
  CheckpointError,
  Generator,
  loadCheckpoint,
  manualSeed,
  nn,
  ones,
  optim,
  rand,
  saveCheckpoint,
  saveSafetensors,
  type Tensor,
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
