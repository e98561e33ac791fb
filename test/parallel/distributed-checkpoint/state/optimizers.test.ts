/** The state of one optimizer does not load into one that cannot use it. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { type CheckpointState, distributedCheckpoint } from '../../../../lib/distributed.js';
import { CheckpointError, nn, ones, optim } from '../../../../lib/index.js';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'shardwise-optimizers-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const makers = {
  AdamW: (model: nn.AnyModule) => new optim.AdamW(model.parameters()),
  SGD: (model: nn.AnyModule) => new optim.SGD(model.parameters(), { lr: 0.1, momentum: 0.9 }),
};

async function saveTrained(make: (model: nn.AnyModule) => unknown): Promise<void> {
  const model = new nn.Linear(2, 2);
  const optimizer = make(model) as optim.Optimizer;
  model(ones([1, 2]))
    .sum()
    .backward();
  optimizer.step();
  await distributedCheckpoint.save(folder, { model, optimizer } as CheckpointState);
}

function load(make: (model: nn.AnyModule) => unknown) {
  const model = new nn.Linear(2, 2);
  const state = { model, optimizer: make(model) } as CheckpointState;
  return distributedCheckpoint.load(folder, state, { strict: false });
}

describe('the state of an optimizer', () => {
  for (const [saved, given] of [
    ['AdamW', 'SGD'],
    ['SGD', 'AdamW'],
  ] as const)
    it(`of ${saved} is refused by ${given}, with both names and what was saved`, async () => {
      await saveTrained(makers[saved]);
      const states = saved === 'SGD' ? /momentum_buffer/ : /exp_avg, exp_avg_sq, step/;
      const isRefused = (error: Error): boolean =>
        error instanceof CheckpointError &&
        error.message.includes(`"optimizer" is ${given}`) &&
        states.test(error.message);
      await assert.rejects(
        load(makers[given]),
        (error: Error) => isRefused(error) && error.message.includes(`the state of ${saved}`),
      );
      const file = path.join(folder, 'checkpoint.index.json');
      const index = JSON.parse(readFileSync(file, 'utf8'));
      delete index.values['optimizer.class']; // as before names were saved
      writeFileSync(file, JSON.stringify(index));
      await assert.rejects(load(makers[given]), isRefused);
      await load(makers[saved]);
    });

  it('is taken by one with the same options, and with those that a schedule added', async () => {
    await saveTrained((model) => {
      const optimizer = new optim.Adam(model.parameters());
      new optim.lrScheduler.StepLR(optimizer as never, 2);
      return optimizer;
    });
    await load(makers.AdamW);
    class Mine extends optim.AdamW {}
    await load((model) => new Mine(model.parameters()));
  });
});
