/** Plain values of a state come back as they were, whatever their names are. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import {
  type CheckpointState,
  distributedCheckpoint,
  launch,
} from '../../../../lib/distributed.js';
import { type Tensor, tensor } from '../../../../lib/index.js';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'shardwise-values-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

/** Keeps its state as it is. */
class Holder {
  state: unknown = null;
  stateDict(): unknown {
    return this.state;
  }
  loadStateDict(state: unknown): void {
    this.state = state;
  }
}

async function loaded(value: unknown): Promise<unknown> {
  const [saved, other] = [new Holder(), new Holder()];
  saved.state = value;
  await distributedCheckpoint.save(folder, { holder: saved });
  await distributedCheckpoint.load(folder, { holder: other });
  return other.state;
}

describe('a plain value', () => {
  it('comes back as it was, also with names that a checkpoint uses itself', async () => {
    const names = fc.constantFrom('$value', '$random', '$tensor', 'a', '__proto__');
    const { value } = fc.letrec((tie) => ({
      value: fc.oneof(
        { maxDepth: 4 },
        fc.constantFrom<unknown>(
          null,
          true,
          0,
          -0,
          1.5,
          NaN,
          Infinity,
          7n,
          '',
          'bigint 5',
          'a',
          undefined,
        ),
        fc.array(tie('value'), { maxLength: 3 }),
        fc.dictionary(names, tie('value'), { maxKeys: 2, noNullPrototype: true }),
      ),
    }));
    await fc.assert(
      fc.asyncProperty(
        value.filter((given) => given !== undefined),
        async (given) => {
          assert.deepEqual(await loaded(given), given);
        },
      ),
      { numRuns: 200 },
    );
  });

  it('with such a name comes back with tensors beside it', async () => {
    const given = { w: tensor([1, 2]), at: { $tensor: 'w' }, list: [{ $value: tensor([3]) }] };
    const found = (await loaded(given)) as typeof given;
    assert.deepEqual(found.at, { $tensor: 'w' });
    assert.deepEqual(found.w.tolist(), [1, 2]);
    assert.deepEqual(found.list[0]?.$value.tolist(), [3]);
  });

  it('that differs by rank keeps such a name', async () => {
    await launch(2, async (rank) => {
      const list = [{ $random: rank }];
      await distributedCheckpoint.save(folder, { list });
      const state = { list: [] as unknown[] };
      await distributedCheckpoint.load(folder, state as CheckpointState);
      assert.deepEqual(state.list, [{ $random: rank }]);
    });
  });
});

describe('an empty object of a state', () => {
  it('gets all values and tensors that the checkpoint has there', async () => {
    const data = { epoch: 3, files: ['a', 'b'], inner: { position: 5n, mean: tensor([1, 2]) } };
    await distributedCheckpoint.save(folder, { data, step: 1 });
    const state = { data: {} as typeof data, step: 0 };
    const { missing, unexpected } = await distributedCheckpoint.load(folder, state);
    assert.deepEqual([missing, unexpected, state.step], [[], [], 1]);
    const { mean, ...inner } = state.data.inner;
    assert.deepEqual(
      { ...state.data, inner },
      { epoch: 3, files: ['a', 'b'], inner: { position: 5n } },
    );
    assert.deepEqual(mean.tolist(), [1, 2]);
  });

  it('stays empty if the checkpoint has nothing there', async () => {
    await distributedCheckpoint.save(folder, { data: {}, step: 1 });
    const state: CheckpointState = { data: {}, step: 0 };
    await distributedCheckpoint.load(folder, state);
    assert.deepEqual(state, { data: {}, step: 1 });
  });

  it('is not filled before a load is known to fit', async () => {
    await distributedCheckpoint.save(folder, { data: { epoch: 3, t: tensor([1]) }, step: 1 });
    const state: CheckpointState = { data: {}, other: 0 };
    await assert.rejects(distributedCheckpoint.load(folder, state), /lacks "other"/);
    assert.deepEqual(state, { data: {}, other: 0 });
    const part: Record<string, Tensor | number> = {};
    await distributedCheckpoint.load(folder, { data: part }, { strict: false });
    assert.deepEqual(Object.keys(part).sort(), ['epoch', 't']);
  });
});
