/** Layers, losses and in-place activations as modules. */
import assert from 'node:assert/strict';
import { ArgumentError, nn, ones, type Tensor, tensor, zeros } from '../../lib/index.js';

describe('nn layers', () => {
  it('Embedding.fromPretrained freezes its table, and paddingIdx gets no gradient', () => {
    const table = Object.assign(nn.Embedding.fromPretrained(ones([3, 2])), {});
    assert.equal(table.weight.requiresGrad, false);
    const layer = new nn.Embedding(3, 2, { paddingIdx: -1 });
    assert.deepEqual(layer.weight.select(0, 2).tolist(), [0, 0]);
    layer(tensor([0, 2]).long())
      .sum()
      .backward();
    assert.deepEqual(layer.weight.grad?.tolist(), [
      [1, 1],
      [0, 0],
      [0, 0],
    ]);
    assert.throws(() => new nn.Embedding(3, 2, { paddingIdx: 3 }), ArgumentError);
  });

  it('in-place activations change their input', () => {
    const x = tensor([-1, 2]);
    assert.equal(new nn.ReLU({ inplace: true })(x), x);
    assert.deepEqual(x.tolist(), [0, 2]);
    assert.deepEqual(new nn.LeakyReLU(0.5, { inplace: true })(tensor([-2])).tolist(), [-1]);
  });

  it('GroupNorm of one group equals LayerNorm over channels and positions', () => {
    const x = ones([2, 4, 3])
      .cumsum(1)
      .add(ones([2, 4, 3]).cumsum(2).mul(2));
    const layer = new nn.GroupNorm(1, 4);
    assert.ok(layer(x).allclose(x.reshape(2, 12).layerNorm([12]).reshape(2, 4, 3), { atol: 1e-6 }));
    assert.throws(() => new nn.GroupNorm(3, 4), ArgumentError);
  });

  it('BatchNorm1d normalises by the batch in training and by running statistics in evaluation', () => {
    const layer = new nn.BatchNorm1d(1);
    const out = layer(tensor([[1], [3]]));
    out
      .reshape(-1)
      .toTypedArray()
      .forEach((v, i) => assert.ok(Math.abs(Number(v) - (i === 0 ? -1 : 1)) < 1e-4));
    assert.ok(Math.abs((layer.running_mean as Tensor).item() - 0.2) < 1e-6);
    assert.ok(Math.abs((layer.running_var as Tensor).item() - (0.9 + 0.1 * 2)) < 1e-6);
    assert.equal((layer.num_batches_tracked as Tensor).item(), 1);
    assert.ok(
      Math.abs(
        layer
          .eval()(tensor([[0.2]]))
          .item(),
      ) < 1e-6,
    );
    assert.deepEqual(Object.keys(layer.stateDict()), [
      'weight',
      'bias',
      'running_mean',
      'running_var',
      'num_batches_tracked',
    ]);
    assert.throws(() => layer.train()(tensor([[1]])), ArgumentError);
  });

  it('loss modules equal the functions of their names', () => {
    const [x, y] = [tensor([[0.3, -1]]), tensor([[1, 0]])];
    assert.equal(
      new nn.L1Loss({ reduction: 'sum' })(x, y).item(),
      x.l1Loss(y, { reduction: 'sum' }).item(),
    );
    assert.equal(
      new nn.BCEWithLogitsLoss({ posWeight: tensor([2, 2]) })(x, y).item(),
      nn.functional.binaryCrossEntropyWithLogits(x, y, { posWeight: tensor([2, 2]) }).item(),
    );
    assert.ok(
      new nn.NLLLoss()(x.logSoftmax(1), tensor([1]).long()).allclose(
        new nn.CrossEntropyLoss()(x, tensor([1]).long()),
      ),
    );
    assert.equal(
      new nn.SmoothL1Loss({ beta: 0.5 })(x, y).item(),
      nn.functional.smoothL1Loss(x, y, { beta: 0.5 }).item(),
    );
  });

  it('Flatten and Unflatten reshape', () => {
    assert.deepEqual(new nn.Flatten()(zeros([2, 3, 4])).shape, [2, 12]);
    assert.deepEqual(new nn.Unflatten(1, [3, -1])(zeros([2, 12])).shape, [2, 3, 4]);
    assert.deepEqual(new nn.Bilinear(2, 3, 4)(zeros([5, 2]), zeros([5, 3])).shape, [5, 4]);
  });
});

describe('nn.Dropout with inplace', () => {
  it('overwrites its input in training, and gradients pass through the kept elements', () => {
    const layer = new nn.Dropout({ p: 0.5, inplace: true });
    const x = ones([64]);
    assert.equal(layer(x), x);
    assert.deepEqual(new Set(x.tolist() as number[]), new Set([0, 2]));
    const w = ones([64]).requiresGrad_();
    const y = w.mul(1);
    assert.equal(layer(y), y);
    y.sum().backward();
    assert.deepEqual(w.grad?.tolist(), y.tolist());
    assert.throws(() => layer(w), /leaf/);
    const z = ones([4]);
    assert.equal(layer.eval()(z), z);
    assert.deepEqual(z.tolist(), [1, 1, 1, 1]);
    assert.equal(String(layer), 'Dropout(p=0.5, inplace=true)');
  });

  it('is refused unless it is a boolean', () => {
    assert.throws(
      () => new nn.Dropout({ p: 0.1, inplace: 1 as never }),
      /Dropout: expected inplace to be true or false, got 1/,
    );
    assert.throws(
      () => new nn.Dropout(0.1, { inPlace: true } as never),
      /there is no option "inPlace"; options are p, inplace/,
    );
  });
});
