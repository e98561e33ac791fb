/**
 * Transformers and their layers accept PyTorch's masks by name and by position, and copy layers.
 */
import assert from 'node:assert/strict';
import {
  ArgumentError,
  bool,
  float64,
  nn,
  ones,
  randn,
  type Tensor,
  zeros,
} from '../../lib/index.js';

const settings = { dimFeedforward: 16, dropout: 0, batchFirst: true, dtype: float64 } as const;
const src = randn([2, 5, 8], { dtype: float64 });
const tgt = randn([2, 4, 8], { dtype: float64 });
const later = (size: number): Tensor => ones([size, size], { dtype: bool }).triu({ diagonal: 1 });
const padding = (size: number): Tensor => {
  const mask = zeros([2, size], { dtype: bool });
  mask.select(1, size - 1).fill_(true);
  return mask;
};

const encoderLayer = new nn.TransformerEncoderLayer(8, 2, settings);
const decoderLayer = new nn.TransformerDecoderLayer(8, 2, settings);
const encoder = new nn.TransformerEncoder(encoderLayer, 2);
const decoder = new nn.TransformerDecoder(decoderLayer, 2);
const transformer = new nn.Transformer({
  ...settings,
  dModel: 8,
  nhead: 2,
  numEncoderLayers: 1,
  numDecoderLayers: 1,
});

const near = (got: Tensor, want: Tensor): void =>
  assert.ok(got.allclose(want, { rtol: 1e-6, atol: 1e-10 }));

describe('the masks of nn.Transformer', () => {
  it('make an encoder causal by isCausal, also with a padding mask', () => {
    const srcKeyPaddingMask = padding(5);
    for (const module of [encoderLayer, encoder]) {
      near(module(src, { isCausal: true }), module(src, { srcMask: later(5) }));
      near(
        module(src, { isCausal: true, srcKeyPaddingMask }),
        module(src, { srcMask: later(5), srcKeyPaddingMask }),
      );
    }
  });

  it('make a decoder causal by tgtIsCausal and memoryIsCausal, also with padding masks', () => {
    const paddings = { tgtKeyPaddingMask: padding(4), memoryKeyPaddingMask: padding(5) };
    const memoryMask = ones([4, 5], { dtype: bool }).triu({ diagonal: 1 });
    for (const module of [decoderLayer, decoder])
      for (const others of [{}, paddings])
        near(
          module(tgt, src, { ...others, tgtIsCausal: true, memoryIsCausal: true }),
          module(tgt, src, { ...others, tgtMask: later(4), memoryMask }),
        );
  });

  it('reach both the encoder and the decoder', () => {
    const paddings = { srcKeyPaddingMask: padding(5), tgtKeyPaddingMask: padding(4) };
    near(
      transformer(src, tgt, { ...paddings, srcIsCausal: true, tgtIsCausal: true }),
      transformer(src, tgt, { ...paddings, srcMask: later(5), tgtMask: later(4) }),
    );
  });

  it("are accepted by position in PyTorch's order", () => {
    const [srcMask, srcPadding, tgtMask, memoryMask] = [
      later(5),
      padding(5),
      later(4),
      ones([4, 5], { dtype: bool }).triu({ diagonal: 1 }),
    ];
    near(
      encoderLayer(src, srcMask, srcPadding),
      encoderLayer(src, { srcMask, srcKeyPaddingMask: srcPadding }),
    );
    near(
      encoder(src, srcMask, srcPadding),
      encoder(src, { mask: srcMask, srcKeyPaddingMask: srcPadding }),
    );
    near(
      decoder(tgt, src, tgtMask, memoryMask, padding(4)),
      decoder(tgt, src, { tgtMask, memoryMask, tgtKeyPaddingMask: padding(4) }),
    );
    near(
      decoderLayer(tgt, src, null, null, null, srcPadding),
      decoderLayer(tgt, src, { memoryKeyPaddingMask: srcPadding }),
    );
    near(
      transformer(src, tgt, srcMask, tgtMask, memoryMask, srcPadding),
      transformer(src, tgt, { srcMask, tgtMask, memoryMask, srcKeyPaddingMask: srcPadding }),
    );
  });

  it('of another name are refused, with the known names', () => {
    const calls: [name: string, call: (masks: object) => Tensor, known: RegExp][] = [
      [
        'TransformerEncoderLayer',
        (masks) => encoderLayer(src, masks),
        /options are srcMask, srcKeyPaddingMask, isCausal/,
      ],
      [
        'TransformerEncoder',
        (masks) => encoder(src, masks),
        /options are mask, srcKeyPaddingMask, isCausal, srcMask/,
      ],
      [
        'TransformerDecoderLayer',
        (masks) => decoderLayer(tgt, src, masks),
        /options are tgtMask, memoryMask, .*, memoryIsCausal/,
      ],
      [
        'TransformerDecoder',
        (masks) => decoder(tgt, src, masks),
        /options are tgtMask, memoryMask, .*, memoryIsCausal/,
      ],
      [
        'Transformer',
        (masks) => transformer(src, tgt, masks),
        /options are srcMask, .*, memoryIsCausal/,
      ],
    ];
    for (const [name, call, known] of calls)
      for (const wrong of ['masks', 'attnMask', 'src_mask', 'keyPaddingMask']) {
        const refused = (error: Error): boolean =>
          error instanceof ArgumentError &&
          error.message.startsWith(`${name}: there is no option "${wrong}"`) &&
          known.test(error.message);
        assert.throws(() => call({ [wrong]: later(5) }), refused, `${name} ${wrong}`);
      }
  });

  it('that are not tensors, and flags that are not booleans, are refused by name', () => {
    const refusals: [() => unknown, RegExp][] = [
      [
        () => encoderLayer(src, { srcMask: [[1]] as never }),
        /TransformerEncoderLayer: expected srcMask to be a tensor, got an array/,
      ],
      [
        () => encoderLayer(src, { isCausal: 2n as never }),
        /TransformerEncoderLayer: expected isCausal to be true or false, got 2/,
      ],
      [
        () => decoderLayer(tgt, src, { tgtIsCausal: 'yes' as never }),
        /TransformerDecoderLayer: expected tgtIsCausal to be true or false, got 'yes'/,
      ],
      [
        () => decoderLayer(tgt, src, { memoryKeyPaddingMask: 3 as never }),
        /expected memoryKeyPaddingMask to be a tensor/,
      ],
      [
        () => transformer(src, tgt, { srcIsCausal: Symbol('x') as never }),
        /Transformer: expected srcIsCausal to be true or false/,
      ],
      [
        () => encoder(src, later(5), { srcMask: later(5) }),
        /TransformerEncoder: mask and srcMask name the same argument/,
      ],
      [
        () => new nn.TransformerEncoderLayer(8, 2, { normFirst: 1 as never }),
        /TransformerEncoderLayer: expected normFirst to be true or false, got 1/,
      ],
    ];
    for (const [call, message] of refusals)
      assert.throws(
        call,
        (error: Error) => error instanceof ArgumentError && message.test(error.message),
        String(message),
      );
  });
});

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
