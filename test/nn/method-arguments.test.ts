/**
 * Methods of modules, optimizers, scalers and tensors accept arguments by position or by name, as
 * in PyTorch.
 */
import assert from 'node:assert/strict';
import {
  ArgumentError,
  amp,
  Generator,
  manualSeed,
  nn,
  ones,
  optim,
  tensor,
  where,
  zeros,
} from '../../lib/index.js';

const F = nn.functional;
/** A layer with gradients. */
function trained(): nn.Linear {
  const layer = new nn.Linear(2, 2);
  layer(ones([1, 2]))
    .sum()
    .backward();
  return layer;
}

describe('arguments by position and by name', () => {
  it('are accepted by zeroGrad of a module', () => {
    for (const [given, left] of [
      [undefined, null],
      [true, null],
      [false, [0, 0]],
      [{ setToNone: false }, [0, 0]],
    ] as const) {
      const layer = trained();
      layer.zeroGrad(given as never);
      assert.deepEqual(layer.bias?.grad?.tolist() ?? null, left);
    }
    assert.throws(() => trained().zeroGrad(1 as never), ArgumentError);
  });

  it('are accepted by zeroGrad of an optimizer', () => {
    for (const [given, left] of [
      [undefined, null],
      [true, null],
      [false, [0, 0]],
      [{ setToNone: false }, [0, 0]],
    ] as const) {
      const layer = trained();
      new optim.SGD(layer.parameters(), { lr: 1 }).zeroGrad(given as never);
      assert.deepEqual(layer.bias?.grad?.tolist() ?? null, left);
    }
    assert.throws(
      () => new optim.SGD(trained().parameters(), { lr: 1 }).zeroGrad(1 as never),
      ArgumentError,
    );
  });

  it('are accepted by loadStateDict for strict', () => {
    const layer = new nn.Linear(2, 2);
    assert.throws(() => layer.loadStateDict({}, true), /missing/);
    for (const strict of [false, { strict: false }])
      assert.deepEqual(layer.loadStateDict({}, strict as false).missingKeys, ['weight', 'bias']);
    assert.throws(() => layer.loadStateDict({}, 0 as never), ArgumentError);
  });

  it('are accepted by registerBuffer for persistent', () => {
    const layer = new nn.Linear(2, 2);
    layer.registerBuffer('a', zeros([1]), false);
    layer.registerBuffer('b', zeros([1]), { persistent: false });
    layer.registerBuffer({ name: 'c', tensor: zeros([1]), persistent: true });
    assert.deepEqual(Object.keys(layer.stateDict()), ['weight', 'bias', 'c']);
    assert.throws(() => layer.registerBuffer('d', zeros([1]), 0 as never), ArgumentError);
  });

  it('are accepted by GradScaler', () => {
    assert.equal(new amp.GradScaler('cpu', 8, 3, 0.25, 5).getScale(), 8);
    assert.equal(new amp.GradScaler('cuda', { initScale: 16 }).getScale(), 16);
    assert.equal(
      new amp.GradScaler({ device: 'cpu', initScale: 4, growthFactor: 2 }).getScale(),
      4,
    );
    assert.throws(() => new amp.GradScaler('tpu' as never), ArgumentError);
  });

  it('are accepted by requiresGrad_', () => {
    assert.equal(ones([1]).requiresGrad_({ requiresGrad: true }).requiresGrad, true);
    assert.equal(
      ones([1], { requiresGrad: true }).requiresGrad_({ requiresGrad: false }).requiresGrad,
      false,
    );
    assert.throws(() => ones([1]).requiresGrad_('no' as never), ArgumentError);
  });

  it('are accepted by size', () => {
    assert.equal(ones([2, 3]).size({ dim: -1 }), 3);
    assert.throws(
      () => ones([2, 3]).size({ dims: 1 } as never),
      /there is no option "dims"; options are dim/,
    );
  });

  it('are accepted by dropout for inplace', () => {
    for (const call of [
      (x: ReturnType<typeof ones>) => F.dropout(x, 0.5, true, true),
      (x: ReturnType<typeof ones>) =>
        F.dropout(x, { p: 0.5, inplace: true, generator: new Generator(3) }),
    ]) {
      manualSeed(3);
      const x = ones([8]);
      const out = call(x);
      assert.equal(out, x);
      assert.deepEqual([...new Set(x.tolist() as number[])].sort(), [0, 2]);
    }
    const kept = ones([4]);
    assert.equal(F.dropout(kept, 0.5, false, true), kept);
  });

  it('are accepted by where', () => {
    const condition = tensor([true, false]);
    assert.deepEqual(where(condition, { input: 1, other: zeros([2]) }).tolist(), [1, 0]);
    assert.deepEqual(ones([2]).where(condition, { other: 5 }).tolist(), [1, 5]);
    assert.throws(() => where(condition, { inputs: 1 } as never), /there is no option "inputs"/);
  });
});
