/**
 * Scans, sorts, reductions and indexing of more than 2^31 elements equal those of a few rows, which
 * other tests compare with float64.
 */
import assert from 'node:assert/strict';
import {
  arange,
  argmax,
  argmin,
  bool,
  float32,
  float64,
  int64,
  linspace,
  ones,
  randint,
  type Tensor,
  uint8,
  varMean,
  zeros,
} from '../../lib/index.js';
import {
  assertSame,
  BEYOND,
  checkRows,
  describeBeyond,
  device,
  partsOf,
  random,
  rowsOf,
} from './beyond-32-bits.js';

const COLUMNS = 4096;
const LENGTH = BEYOND + 2; // a multiple of 5

describeBeyond('order and indices', () => {
  it('are correct in cumsum and cumprod', async () => {
    await checkRows(COLUMNS, (x) => x.cumsum(-1));
    await checkRows(COLUMNS, (x) => x.clamp({ min: 0.9, max: 1.1 }).cumprod(-1));
    const counts = ones([LENGTH], { device, dtype: uint8 }).cumsum(0);
    for (const at of [0, BEYOND - 2, LENGTH - 2])
      assert.deepEqual(counts.narrow(0, at, 2).tolist(), [at + 1, at + 2]);
    counts.dispose();
    const rows = rowsOf(COLUMNS);
    const down = ones([rows, COLUMNS], { device }).cumsum(0);
    await assertSame(
      down.narrow(0, rows - 1, 1),
      ones([1, COLUMNS], { device }).mul(rows),
      'the last row',
    );
    down.dispose();
  });

  for (const columns of [1024, COLUMNS, 131_072]) {
    it(`are correct in sort and argsort, rows of ${columns}`, async () => {
      await checkRows(columns, (x) => x.sort().values);
      await checkRows(columns, (x) => x.gather(-1, x.sort().indices));
      await checkRows(columns, (x) => x.topk(5).values);
      await checkRows(columns, (x) => x.gather(-1, x.topk(5).indices));
    });
  }

  it('are correct in reductions of rows and of columns', async () => {
    await checkRows(COLUMNS, (x) => x.sum(-1));
    await checkRows(COLUMNS, (x) => x.amax(-1));
    await checkRows(COLUMNS, (x) => argmax(x, -1));
    await checkRows(COLUMNS, (x) => x.logsumexp(-1));
    await checkRows(COLUMNS, (x) => x.norm(2, -1));
    for (const i of [0, 1]) await checkRows(COLUMNS, (x) => varMean(x, -1)[i] as Tensor);
    await checkRows(COLUMNS, (x) => x.amin(-1));
    await checkRows(COLUMNS, (x) => argmin(x, -1));
    await checkRows(COLUMNS, (x) => x.mean(-1));
    await checkRows(COLUMNS, (x) => x.clamp({ min: 1, max: 1.01 }).prod(-1));
    await checkRows(COLUMNS, (x) => x.gt(3.5).any(-1).to(float32).add(1));
    await checkRows(COLUMNS, (x) => x.gt(-3.5).all(-1).to(float32).add(1));
    const x = random([rowsOf(COLUMNS), COLUMNS]);
    const half = Math.floor(rowsOf(COLUMNS) / 2);
    const [top, bottom] = [x.narrow(0, 0, half), x.narrow(0, half, rowsOf(COLUMNS) - half)];
    await assertSame(x.amax(0), top.amax(0).maximum(bottom.amax(0)), 'the largest of columns');
    await assertSame(
      x.square().sum(0, { dtype: float32 }),
      top
        .square()
        .sum(0, { dtype: float32 })
        .add(bottom.square().sum(0, { dtype: float32 })),
      'sums of columns',
    );
    x.dispose();
  });

  it('are correct in scatter and scatterAdd', async () => {
    for (const columns of [1024, COLUMNS])
      await checkRows(columns, (x) => x.scatter(1, x.argsort(1), x));
    await checkRows(COLUMNS, (x) => {
      const ids = arange(0, COLUMNS, 512, { device }).expand([x.shape[0] as number, 8]);
      return x.scatterAdd(1, ids, x.narrow(1, 8, 8));
    });
    const rows = rowsOf(COLUMNS);
    const backwards = arange(0, rows, 1, { device }).flip([0]);
    const table = random([100, COLUMNS]);
    await checkRows(COLUMNS, (x) => {
      const ids = x.narrow(1, 0, 1).gt(0).to(int64).squeeze(1);
      return table.indexSelect(0, ids).add(table.index([ids]));
    });
    const x = random([rows, COLUMNS]);
    const turned = zeros([rows, COLUMNS], { device, dtype: x.dtype });
    const parts = partsOf(rows, COLUMNS, 1);
    const writes = [
      () => turned.indexPut_([backwards], x),
      () => turned.indexPut_([backwards], x, { accumulate: true }),
      () => turned.indexAdd_(0, backwards, x),
    ];
    for (const [i, write] of writes.entries()) {
      write();
      for (const row of parts)
        await assertSame(
          turned.narrow(0, rows - 1 - row, 1),
          x.narrow(0, row, 1).mul(i + 1),
          `row ${row}, after ${i + 1} writes`,
        );
    }
    turned.dispose();
    for (const row of parts) {
      const [ids, columns] = [randint(row, row + 1, [2], { device }), arange(7, 9, 1, { device })];
      const before = x.narrow(0, row, 1).clone();
      await assertSame(
        x.index([ids, columns]),
        before.view([COLUMNS]).narrow(0, 7, 2),
        `two elements of row ${row}`,
      );
      const values = random([2]);
      x.indexPut_([ids, columns], values);
      await assertSame(
        x.narrow(0, row, 1).view([COLUMNS]).narrow(0, 7, 2),
        values,
        `elements put into row ${row}`,
      );
      x.indexPut_([ids.narrow(0, 0, 1)], before, { accumulate: true });
      await assertSame(
        x.narrow(0, row, 1).narrow(1, 16, 8),
        before.narrow(1, 16, 8).mul(2),
        `a sum in row ${row}`,
      );
      x.indexAdd_(0, ids.narrow(0, 0, 1), before);
      await assertSame(
        x.narrow(0, row, 1).narrow(1, 16, 8),
        before.narrow(1, 16, 8).mul(3),
        `two sums in row ${row}`,
      );
    }
    x.dispose();
  });

  it('are correct in nonzero', async () => {
    const x = zeros([LENGTH], { device, dtype: bool });
    const places = [3, BEYOND - 1, BEYOND, LENGTH - 1];
    for (const at of places) x.narrow(0, at, 1).fill_(true);
    assert.deepEqual(x.nonzero().view([-1]).tolist(), places);
    assert.equal(x.sum({ dtype: int64 }).item(), 4);
    const all = x
      .fill_(true)
      .view([5, LENGTH / 5])
      .nonzero();
    assert.deepEqual(all.shape, [LENGTH, 2]);
    for (const at of [0, BEYOND - 1, LENGTH - 1])
      assert.deepEqual(all.narrow(0, at, 1).tolist(), [
        [Math.floor(at / (LENGTH / 5)), at % (LENGTH / 5)],
      ]);
    for (const t of [x, all]) t.dispose();
  });

  it('are correct in arange', async () => {
    for (const numbers of [
      arange(0, LENGTH, 1, { device }),
      linspace(0, LENGTH - 1, LENGTH, { device, dtype: float64 }),
    ]) {
      for (const at of [0, BEYOND - 1, LENGTH - 2])
        assert.deepEqual(numbers.narrow(0, at, 2).tolist(), [at, at + 1]);
      numbers.dispose();
    }
  });

  it('are correct in tril, flip, cat and maskedFill', async () => {
    await checkRows(65_536, (x, first) => x.tril({ diagonal: first + 5 }));
    await checkRows(COLUMNS, (x) => x.flip([1]));
    await checkRows(COLUMNS, (x) => x.roll(5, 1));
    await checkRows(COLUMNS, (x) => x.maskedFill(x.gt(0), 7));
  });
});
