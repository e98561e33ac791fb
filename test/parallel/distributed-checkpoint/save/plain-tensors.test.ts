/** Tensors that each rank has whole are saved once, so they must be the same on all ranks. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import fc from 'fast-check';
import { distributedCheckpoint, launch } from '../../../../lib/distributed.js';
import {
  bfloat16,
  CheckpointError,
  type DType,
  float32,
  int64,
  manualSeed,
  nn,
  noGrad,
  optim,
  rand,
  type Tensor,
  tensor,
  zeros,
} from '../../../../lib/index.js';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'shardwise-plain-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const differs = (name: string, ranks: string) => (error: Error) =>
  new RegExp(`"${name}"( \\(and \\d more\\))? differs between rank 0 and rank ${ranks}\\.`).test(
    error.message,
  );

describe('a plain tensor', () => {
  it('is refused on all ranks if one element differs, with its name and the ranks', async function () {
    this.timeout(60_000);
    const dtypes = fc.constantFrom<DType>(float32, bfloat16, int64);
    const shapes = fc.array(fc.integer({ min: 1, max: 6 }), { maxLength: 3 });
    await fc.assert(
      fc.asyncProperty(
        dtypes,
        shapes,
        fc.nat(),
        fc.uniqueArray(fc.integer({ min: 1, max: 3 }), { minLength: 1, maxLength: 3 }),
        async (dtype, shape, at, odd) => {
          const failures = await launch(4, async (rank) => {
            const t = zeros(shape, { dtype });
            if (odd.includes(rank))
              t.view([-1])
                .select(0, at % t.numel())
                .fill_(1);
            const state = { inner: { t, same: tensor([NaN, 1]) } };
            return distributedCheckpoint.save(folder, state).catch((error: Error) => error);
          });
          const ranks = [...odd].sort().join(', ');
          for (const error of failures)
            assert.ok(
              error instanceof CheckpointError && differs('inner.t', ranks)(error),
              String(error),
            );
        },
      ),
      { numRuns: 15 },
    );
  });

  it('is compared by a sample if it is large, also with strides', async () => {
    const failures = await launch(2, (rank) => {
      const t = zeros([700, 500]).t();
      if (rank === 1) t.narrow(0, 3, 400).fill_(1);
      return distributedCheckpoint.save(folder, { t }).catch((error: Error) => error);
    });
    for (const error of failures) assert.ok(differs('t', '1')(error as Error), String(error));
  });

  it('of an optimizer is compared, too, also in the background', async () => {
    const failures = await launch(2, async (rank) => {
      manualSeed(1);
      const model = new nn.Linear(3, 3);
      const optimizer = new optim.AdamW(model.parameters());
      model(rand([2, 3]).add(rank))
        .sum()
        .backward(); // gradients that nobody averages
      optimizer.step();
      const state = { model, optimizer } as never;
      return distributedCheckpoint
        .save(folder, state, { async: true })
        .then((pending) => pending.wait())
        .catch((error: Error) => error);
    });
    for (const error of failures)
      assert.ok(
        differs('optimizer.state.model.weight.exp_avg', '1')(error as Error),
        String(error),
      );
  });

  it('that is a buffer of a module may differ: that of the first rank is saved', async () => {
    class Net extends nn.Module<[x: Tensor], Tensor> {
      norm = new nn.BatchNorm1d(5);
      table = this.registerBuffer('table', zeros([4000, 3]));
      forward(x: Tensor): Tensor {
        return this.norm(x);
      }
    }
    await launch(3, async (rank) => {
      const model = new Net();
      for (const buffer of model.buffers()) noGrad(() => buffer.fill_(rank + 5));
      await distributedCheckpoint.save(folder, { model });
      const other = new Net();
      await distributedCheckpoint.load(folder, { model: other });
      for (const buffer of other.buffers())
        assert.deepEqual([...new Set(await buffer.double().reshape([-1]).read())], [5]);
    });
  });

  it('may differ under names of which each rank has one', async () => {
    await launch(2, async (rank) => {
      await distributedCheckpoint.save(folder, { [`of-${rank}`]: tensor([rank]) });
      const t = tensor([9]);
      await distributedCheckpoint.load(folder, { [`of-${rank}`]: t });
      assert.deepEqual([...(await t.read())], [rank]);
    });
  });
});
