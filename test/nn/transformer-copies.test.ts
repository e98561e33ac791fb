/** Encoders and decoders copy the layer that they are given, as PyTorch does. */
import assert from 'node:assert/strict';
import { ArgumentError, float64, nn, randn } from '../../lib/index.js';

describe('nn.TransformerEncoder', () => {
  it('copies a layer with equal values and separate parameters', () => {
    const layer = new nn.TransformerEncoderLayer(8, 2, {
      dimFeedforward: 16,
      batchFirst: true,
      dropout: 0,
    })
      .to(float64)
      .eval();
    const encoder = new nn.TransformerEncoder(layer, 2, new nn.LayerNorm(8).to(float64));
    const [first, second] = [...encoder.layers];
    assert.notEqual(first?.linear1.weight, second?.linear1.weight);
    assert.ok(first?.linear1.weight.equal(layer.linear1.weight));
    assert.equal(second?.training, false);
    const x = randn([3, 5, 8], { dtype: float64 });
    assert.ok(encoder(x).allclose(encoder.norm?.(layer(layer(x))) as never));
    assert.deepEqual(Object.keys(layer.stateDict()), Object.keys(first?.stateDict() ?? {}));
  });

  it('creates layers by a function, and refuses other arguments', () => {
    const made = new nn.TransformerEncoder(() => new nn.TransformerEncoderLayer(8, 2), 2);
    const [first, second] = [...made.layers];
    assert.ok(!first?.linear1.weight.equal(second?.linear1.weight as never));
    class Own extends nn.TransformerEncoderLayer {}
    assert.throws(() => new nn.TransformerEncoder(new Own(8, 2), 2), /a function that returns one/);
    assert.throws(
      () =>
        new nn.TransformerEncoder(new nn.TransformerEncoderLayer(8, 2), 2, { norm: 3 as never }),
      ArgumentError,
    );
  });
});

describe('nn.TransformerDecoder', () => {
  it('copies a layer with equal values and separate parameters', () => {
    const layer = new nn.TransformerDecoderLayer(8, 2, { dropout: 0 });
    const decoder = new nn.TransformerDecoder(layer, 2);
    const [tgt, memory] = [randn([4, 1, 8]), randn([6, 1, 8])];
    assert.ok(decoder(tgt, memory).allclose(layer(layer(tgt, memory), memory), { atol: 1e-6 }));
  });
});
