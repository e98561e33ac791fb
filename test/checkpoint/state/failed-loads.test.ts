/** A load that fails in the code of the program: what it called, and what is there afterwards. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import {
  amp,
  CheckpointError,
  type CheckpointState,
  loadCheckpoint,
  nn,
  ones,
  optim,
  saveCheckpoint,
  zeros,
} from '../../../lib/index.js';

let folder: string;
let file: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'shardwise-load-'));
  file = path.join(folder, 'run.safetensors');
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const makeOptimizer = (): optim.SGD => new optim.SGD(new nn.Linear(1, 1).parameters(), { lr: 1 });

/** An object that takes no state, or only states of one value. */
class Stubborn {
  calls: unknown[] = [];
  value: number;
  private readonly accepts: (value: number) => boolean;
  constructor(value: number, accepts: (value: number) => boolean) {
    this.value = value;
    this.accepts = accepts;
  }
  stateDict(): { value: number } {
    return { value: this.value };
  }
  loadStateDict(state: { value: number }): void {
    this.calls.push(state.value);
    this.value = state.value;
    if (!this.accepts(state.value)) throw new Error(`not ${state.value}`);
  }
}

describe('a load that fails in the code of the program', () => {
  it('calls an overridden loadStateDict once with the saved state', async () => {
    const calls: string[] = [];
    const counted = <T extends { loadStateDict(state: never): unknown }>(
      object: T,
      name: string,
    ) => {
      const load = object.loadStateDict.bind(object);
      object.loadStateDict = (state: never) => {
        calls.push(name);
        load(state);
      };
      return object;
    };
    const optimizer = makeOptimizer();
    const state = {
      step: counted(new optim.lrScheduler.StepLR(optimizer, 2), 'step'),
      plateau: counted(new optim.lrScheduler.ReduceLROnPlateau(optimizer), 'plateau'),
      chained: counted(
        new optim.lrScheduler.ChainedScheduler([new optim.lrScheduler.StepLR(optimizer, 2)]),
        'chained',
      ),
      multi: counted(new optim.lrScheduler.MultiStepLR(optimizer, [2]), 'multi'),
      sequence: new optim.lrScheduler.SequentialLR(
        optimizer,
        [counted(new optim.lrScheduler.StepLR(optimizer, 2), 'first of the sequence')],
        [],
      ),
      scaler: counted(new amp.GradScaler(), 'scaler'),
    };
    await saveCheckpoint(file, state);
    await loadCheckpoint(file, state);
    assert.deepEqual(calls, [
      'step',
      'plateau',
      'chained',
      'multi',
      'first of the sequence',
      'scaler',
    ]);
  });

  it('leaves schedules and scalers alone until all states are checked', async () => {
    const optimizer = makeOptimizer();
    const { StepLR, MultiStepLR, ReduceLROnPlateau, SequentialLR, ChainedScheduler } =
      optim.lrScheduler;
    const inSequence = (size: number) =>
      new SequentialLR(optimizer, [new StepLR(optimizer, 2), new StepLR(optimizer, size)], [3]);
    const state = {
      step: new StepLR(optimizer, 2),
      multi: new MultiStepLR(optimizer, [2]),
      plateau: new ReduceLROnPlateau(optimizer),
      sequence: inSequence(5),
      chained: new ChainedScheduler([new StepLR(optimizer, 2)]),
      scaler: new amp.GradScaler(),
      last: new StepLR(optimizer, 2),
    };
    await saveCheckpoint(file, { ...state, last: new amp.GradScaler() });
    for (const object of Object.values(state)) Object.freeze(object); // a trial would throw
    await assert.rejects(loadCheckpoint(file, state), /StepLR\.loadStateDict/);
  });

  it('puts back what was loaded before, and the object itself', async () => {
    const tags = new Set(['a']);
    const first = { tags, stateDict: () => ({ tags }), loadStateDict };
    function loadStateDict(state: { tags: Set<string> }): void {
      tags.clear();
      for (const tag of state.tags) tags.add(tag);
    }
    const made = (value: number, own: Stubborn) => ({
      x: ones([1]).mul(value),
      n: value,
      first,
      own,
    });
    await saveCheckpoint(file, made(1, new Stubborn(1, () => true)));
    tags.add('b');
    const own = new Stubborn(2, (value) => value === 2);
    const state = made(2, own);
    await assert.rejects(loadCheckpoint(file, state), /^Error: not 1$/);
    assert.deepEqual(own.calls, [1, 2]);
    assert.deepEqual([state.x.tolist(), state.n, [...tags], own.value], [[2], 2, ['a', 'b'], 2]);
  });

  it('names what could not be put back', async () => {
    const make = (value: number, accepts: boolean) => new Stubborn(value, () => accepts);
    const saved = { x: ones([1]), first: make(1, true), own: make(1, true), after: zeros([1]) };
    await saveCheckpoint(file, saved);
    const first = new Stubborn(2, (value) => value === 1);
    const state = { x: zeros([1]), first, own: make(2, false), after: ones([1]) };
    await assert.rejects(
      loadCheckpoint(file, state),
      (error: CheckpointError) =>
        error instanceof CheckpointError &&
        /"own" .*not 1/s.test(error.message) &&
        /"first", "own" could not be put back/.test(error.message) &&
        error.details['notRestored']?.toString() === 'first,own' &&
        (error.cause as Error).message === 'not 1',
    );
    assert.deepEqual([state.x.tolist(), state.after.tolist()], [[0], [1]]);
  });

  it('is refused before anything changes if a value cannot be set', async () => {
    await saveCheckpoint(file, { x: ones([1]), data: { n: 1 } });
    const getter = {
      get n(): number {
        return 0;
      },
    };
    for (const data of [getter, Object.freeze({ n: 0 })]) {
      const x = zeros([1]);
      await assert.rejects(
        loadCheckpoint(file, { x, data }),
        (error: Error) =>
          error instanceof CheckpointError && /"data\.n" .*cannot be set/.test(error.message),
      );
      assert.deepEqual(x.tolist(), [0]);
    }
  });

  it('puts back what came before a setter that throws', async () => {
    await saveCheckpoint(file, { x: ones([1]), data: { n: 1 } });
    let n = 0;
    const data = {
      get n(): number {
        return n;
      },
      set n(value: number) {
        n = value;
        if (value === 1) throw new Error('not 1');
      },
    };
    const x = zeros([1]);
    await assert.rejects(loadCheckpoint(file, { x, data } as CheckpointState), /^Error: not 1$/);
    assert.deepEqual([x.tolist(), n], [[0], 0]);
  });
});
