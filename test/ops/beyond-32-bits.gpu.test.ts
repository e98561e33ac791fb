/**
 * Row kernels, matmul and optimizer steps on more than 2^31 elements equal those of a few rows,
 * which other tests compare with float64.
 */
import assert from 'node:assert/strict';
import {
  addRmsNorm,
  autograd,
  bfloat16,
  crossEntropy,
  float32,
  layerNorm,
  nn,
  ones,
  optim,
  randint,
  rmsNorm,
  scope,
  type Tensor,
} from '../../lib/index.js';
import { foreachAdd_, foreachMul_ } from '../../lib/ops/optimizer-steps.js';
import {
  assertSame,
  BEYOND,
  checkRows,
  describeBeyond,
  device,
  gradientOf,
  HEIGHT,
  partsOf,
  random,
  rowsOf,
} from './beyond-32-bits.js';

describeBeyond('rows, products, steps', () => {
  for (const columns of [4096, 131_072]) {
    it(`are correct in softmax and logSoftmax, rows of ${columns}`, async () => {
      await checkRows(columns, (x) => x.softmax(-1));
      await checkRows(columns, (x) => x.logSoftmax(-1));
    });
    it(`are correct in the gradient of softmax, rows of ${columns}`, () =>
      checkRows(
        columns,
        gradientOf((x) => x.softmax(-1)),
      ));
    it(`are correct in the gradient of logSoftmax, rows of ${columns}`, () =>
      checkRows(
        columns,
        gradientOf((x) => x.logSoftmax(-1)),
      ));
  }

  for (const columns of [4095, 4096]) {
    it(`are correct in layerNorm and rmsNorm, rows of ${columns}`, async () => {
      const [gain, bias] = [random([columns]), random([columns])];
      await checkRows(columns, (x) => layerNorm(x, [columns], gain, bias));
      await checkRows(columns, (x) => rmsNorm(x, [columns], gain));
    });

    it(`are correct in the gradients of layerNorm and rmsNorm, rows of ${columns}`, async () => {
      const [gain, bias] = [random([columns]), random([columns])];
      await checkRows(
        columns,
        gradientOf((x) => layerNorm(x, [columns], gain, bias)),
      );
      await checkRows(
        columns,
        gradientOf((x) => rmsNorm(x, [columns], gain)),
      );
    });

    it(`are correct in the gradients of the weight and bias of layerNorm, rows of ${columns}`, async () => {
      const x = random([rowsOf(columns), columns]);
      const leaves = [
        random([columns]).requiresGrad_(),
        random([columns]).requiresGrad_(),
      ] as const;
      const sums = (part: Tensor): Tensor[] =>
        scope(() =>
          autograd
            .grad(layerNorm(part, [columns], ...leaves), leaves, { gradOutputs: part })
            .map((g) => (g as Tensor).to(float32)),
        );
      const half = Math.floor((x.shape[0] as number) / 2);
      const [whole, top, bottom] = [
        sums(x),
        sums(x.narrow(0, 0, half)),
        sums(x.narrow(0, half, (x.shape[0] as number) - half)),
      ];
      for (const i of [0, 1])
        await assertSame(
          whole[i] as Tensor,
          (top[i] as Tensor).add(bottom[i] as Tensor),
          i === 0 ? 'weight' : 'bias',
        );
      x.dispose();
    });
  }

  it('are correct in crossEntropy and its gradient', async () => {
    const classes = 128_256;
    const targets = randint(0, classes, [rowsOf(classes)], { device });
    const own = (x: Tensor, first: number): Tensor =>
      targets.narrow(0, first, x.shape[0] as number);
    await checkRows(classes, (x, first) => crossEntropy(x, own(x, first), { reduction: 'none' }));
    const gradient = (x: Tensor, first: number): Tensor =>
      scope(() => {
        const leaf = x.detach().requiresGrad_();
        return autograd.grad(crossEntropy(leaf, own(x, first), { reduction: 'sum' }).mul(0.5), [
          leaf,
        ])[0] as Tensor;
      });
    await checkRows(classes, gradient);
  });

  it('are correct in matmul with many rows, and with many rows and columns', async () => {
    const [narrow, wide] = [random([64, 4096]), random([2 ** 15 + 8, 64])];
    await checkRows(4096, (x) => x.matmul(narrow.t()));
    await checkRows(
      2 ** 15 + 8,
      (x) => x.matmul(wide.t()),
      (rows) => random([rows, 64]),
    );
  });

  it('are correct in transposed copies and casts', async () => {
    await checkRows(4096, (x) => x.t().contiguous().t());
    await checkRows(4096, (x) => x.to(float32).mul(3).to(bfloat16));
  });

  it('are correct in embedding and its gradient', async () => {
    const columns = 4096;
    const rows = rowsOf(columns);
    const parts = partsOf(rows, columns, 1);
    const table = random([rows, columns]).requiresGrad_();
    const ids = parts.map((row) => randint(row, row + 1, [1], { device }));
    const taken = ids.map((id) => table.indexSelect(0, id));
    for (const [i, row] of parts.entries())
      await assertSame(taken[i] as Tensor, table.detach().narrow(0, row, 1), `row ${row}`);
    const given = random([1, columns]);
    const gradient = scope(
      () =>
        autograd.grad(table.indexSelect(0, ids[2] as Tensor), [table], {
          gradOutputs: given,
        })[0] as Tensor,
    );
    await assertSame(gradient.narrow(0, parts[2] as number, 1), given, 'its gradient');
    assert.equal(await gradient.narrow(0, 0, 2).abs().amax().itemAsync(), 0);
    for (const t of [table, gradient]) t.dispose();
  });

  for (const columns of [4095, 4096]) {
    it(`are correct in addRmsNorm and its gradient, rows of ${columns}`, async () => {
      const gain = random([columns]);
      for (const i of [0, 1])
        await checkRows(columns, (x) => addRmsNorm(x, x, [columns], gain)[i] as Tensor);
      await checkRows(
        columns,
        gradientOf((x) => addRmsNorm(x, x, [columns], gain)[0]),
      );
    });
  }

  it('are correct in sums of products of many rows', async () => {
    const rows = rowsOf(64);
    const x = random([rows, 64]);
    const half = Math.floor(rows / 2);
    const products = (part: Tensor): Tensor => part.t().matmul(part).to(float32);
    await assertSame(
      products(x),
      products(x.narrow(0, 0, half)).add(products(x.narrow(0, half, rows - half))),
      'sums',
    );
    x.dispose();
  });

  const steps: Record<string, (parameter: nn.Parameter) => unknown> = {
    AdamW: (parameter) => new optim.AdamW([parameter], { lr: 0.1 }).step(),
    'SGD with momentum': (parameter) =>
      new optim.SGD([parameter], { lr: 0.1, momentum: 0.9 }).step(),
  };
  for (const [name, take] of Object.entries(steps)) {
    it(`are correct in a step of ${name}`, async () => {
      const columns = 4096;
      const rows = rowsOf(columns);
      const [values, gradient] = [random([rows, columns]), random([rows, columns])];
      const step = (from: number, height: number): Tensor => {
        const parameter = new nn.Parameter(values.narrow(0, from, height).clone());
        parameter.grad = gradient.narrow(0, from, height).clone();
        take(parameter);
        return parameter.detach();
      };
      const whole = step(0, rows);
      for (const first of partsOf(rows, columns, HEIGHT))
        await assertSame(whole.narrow(0, first, HEIGHT), step(first, HEIGHT), `rows from ${first}`);
      for (const t of [values, gradient, whole]) t.dispose();
    });
  }

  it('are correct in norms of gradients and in clipGradNorm_', async () => {
    const parameter = new nn.Parameter(ones([BEYOND + 5], { device, dtype: bfloat16 }));
    parameter.grad = ones([BEYOND + 5], { device, dtype: bfloat16 });
    const before = await nn.utils.clipGradNorm_([parameter], 1).to(float32).itemAsync();
    const norm = Math.sqrt(BEYOND + 5);
    assert.ok(Math.abs(before / norm - 1) < 2 ** -8, `${before}, not ${norm}`);
    const grad = parameter.grad;
    for (const at of [0, BEYOND - 1, BEYOND + 3]) {
      const limited = await grad.narrow(0, at, 2).amax().to(float32).itemAsync();
      assert.ok(Math.abs(limited * norm - 1) < 2 ** -6, `${limited}, not ${1 / norm}`);
    }
    foreachMul_([grad], 2);
    foreachAdd_([grad], [parameter.detach()], { alpha: 3 });
    for (const at of [0, BEYOND - 1, BEYOND + 3])
      assert.equal(await grad.narrow(0, at, 2).amin().to(float32).itemAsync(), 3);
    grad.dispose();
  });
});
