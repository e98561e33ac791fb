/** Flat parameters as PyTorch's test/distributed/fsdp/test_fsdp_flatten_params.py requires them. */
import assert from 'node:assert/strict';
import {
  FlatParamHandle,
  type FlatParamHandleOptions,
  FlatParamShardMetadata,
  FullyShardedDataParallel,
  HandleShardingStrategy,
  worldGroup,
} from '../../lib/distributed.js';
import {
  type DeviceName,
  type DType,
  float16,
  float32,
  manualSeed,
  nn,
  optim,
  rand,
  stack,
  type Tensor,
  tensor,
} from '../../lib/index.js';
import { withRanks } from '../../lib/testing/index.js';
import { devices } from '../golden/devices.js';

const ELEMENTS = 59_520;
const ELEMENTS_SHARED = 43_136;

function transformer(device: DeviceName, dtype: DType, shares = false): nn.Transformer {
  manualSeed(0);
  const module = new nn.Transformer({
    dModel: 32,
    numEncoderLayers: 2,
    numDecoderLayers: 2,
    dimFeedforward: 128,
    dropout: 0.1,
  });
  module.registerBuffer('dummyBuffer', tensor(1));
  if (shares)
    [...module.decoder.layers].forEach((decoderLayer, i) => {
      const encoderLayer = module.encoder.layers.at(i);
      decoderLayer.linear1.weight = encoderLayer.linear1.weight;
      decoderLayer.linear2.weight = encoderLayer.linear2.weight;
    });
  return module.to({ device, dtype });
}

function inputs(where: { device: DeviceName; dtype: DType }): [src: Tensor, tgt: Tensor] {
  manualSeed(1);
  return [rand([20, 8, 32]).to(where), rand([10, 8, 32]).to(where)];
}

type Model = nn.Module<[src: Tensor, tgt: Tensor]>;

/** The output for the seed's inputs, on the device of the parameters and in their dtype. */
function outputOf(module: nn.AnyModule): Tensor {
  const [{ device, dtype }] = [...module.parameters()] as [Tensor];
  return (module as Model)(...inputs({ device: String(device) as DeviceName, dtype }));
}

const numel = (parameters: Iterable<Tensor>): number =>
  [...parameters].reduce((sum, p) => sum + p.numel(), 0);

const wrapped = (module: nn.AnyModule): FullyShardedDataParallel<never, unknown> =>
  new FullyShardedDataParallel(module as nn.Module<never, unknown>);

const config = (device: DeviceName): FlatParamHandleOptions => ({
  device,
  shardingStrategy: HandleShardingStrategy.FULL_SHARD,
  offloadParams: false,
  mpParamDtype: null,
  mpReduceDtype: null,
  keepLowPrecisionGrads: false,
  processGroup: worldGroup(),
  useOrigParams: false,
  fsdpExtension: null,
});

/** The norm of the norms of all parameters after a step. */
function normAfterStep(model: nn.AnyModule): number {
  const sgd = new optim.SGD(model.parameters(), { lr: 0.01 });
  outputOf(model).sum().backward();
  sgd.step();
  return stack([...model.parameters()].map((p) => p.detach().norm()))
    .norm()
    .item();
}

function values(t: Tensor): number[] {
  return t.detach().float().reshape([-1]).tolist() as number[];
}

for (const device of devices)
  describe(`seed 003: flat parameters of one rank on ${device}`, () => {
    for (const dtype of [float32, float16]) {
      const other = dtype === float32 ? float16 : float32;

      it(
        `seed 003.1: some modules are flattened, others not, in ${dtype.name}`,
        withRanks(1, () => {
          const module = transformer(device, dtype);
          assert.equal(numel(module.parameters()), ELEMENTS);
          const [encoderLayer, decoderLayer] = [
            module.encoder.layers.at(1),
            module.decoder.layers.at(0),
          ];
          assert.deepEqual(
            [encoderLayer, decoderLayer].map((m) => numel(m.parameters())),
            [12_704, 16_992],
          );
          const [encoder, decoder] = [wrapped(encoderLayer), wrapped(decoderLayer)];
          Object.assign(module.encoder.layers, { 1: encoder });
          Object.assign(module.decoder.layers, { 0: decoder });
          const flat = [encoder._flatParam as Tensor, decoder._flatParam as Tensor];
          assert.equal(numel(flat), 29_696);
          assert.equal(numel(module.parameters()), ELEMENTS);
          for (const each of [encoder, decoder]) assert.equal([...each.parameters()].length, 1);
          const [plainEncoder, plainDecoder] = [
            module.encoder.layers.at(0),
            module.decoder.layers.at(1),
          ];
          assert.equal([...plainEncoder.parameters()].length, 12);
          assert.equal([...plainDecoder.parameters()].length, 18);
          const all = (): DType[] => [...flat, ...plainEncoder.parameters()].map((p) => p.dtype);
          assert.ok(all().every((each) => each === dtype));
          module.to(other);
          assert.ok(all().every((each) => each === other));
          assert.equal(outputOf(module).dtype, other);
        }),
      );

      it(
        `seed 003.2: a handle of nothing is an error, in ${dtype.name}`,
        withRanks(1, () => {
          assert.throws(() => new FlatParamHandle([], transformer(device, dtype), config(device)), {
            code: 'ERR_ARGUMENT',
            message: /Cannot construct a FlatParamHandle with an empty parameter list/,
          });
        }),
      );
    }

    it(
      'seed 003.3: a module without parameters is wrapped without a flat parameter',
      withRanks(1, () => {
        class Empty extends nn.Module {
          forward(x: Tensor): Tensor {
            return x.add(1);
          }
        }
        const module = new Empty();
        manualSeed(1);
        const x = rand([1]);
        const fsdp = new FullyShardedDataParallel(module);
        assert.deepEqual([...fsdp.parameters()], []);
        assert.equal(fsdp._flatParam, null);
        assert.deepEqual(values(fsdp(x)), values(module(x)));
        assert.deepEqual(values(fsdp(x)), values(x.add(1)));
      }),
    );

    for (const dtype of [float32, float16]) {
      for (const [number, shares] of [
        [4, false],
        [5, true],
      ] as const) {
        const kind = shares ? 'with' : 'without';
        it(
          `seed 003.${number}: a flat parameter has all elements ${kind} shared ones, in ${dtype.name}`,
          withRanks(1, () => {
            const module = transformer(device, dtype, shares);
            const expected = shares ? ELEMENTS_SHARED : ELEMENTS;
            assert.equal(numel(module.parameters()), expected);
            const handle = new FlatParamHandle([...module.parameters()], module, config(device));
            assert.equal(handle.flatParam.numel(), expected);
          }),
        );
      }

      for (const [number, shares] of [
        [6, false],
        [7, true],
      ] as const) {
        const kind = shares ? 'with' : 'without';
        it(
          `seed 003.${number}: wrapping keeps the output ${kind} shared parameters, in ${dtype.name}`,
          withRanks(1, () => {
            const module = transformer(device, dtype, shares);
            const before = values(outputOf(module));
            assert.deepEqual(values(outputOf(wrapped(module))), before);
          }),
        );
      }

      it(
        `seed 003.8: a step of shared parameters is that of the plain module, in ${dtype.name}`,
        withRanks(1, () => {
          const expected = normAfterStep(transformer(device, dtype, true));
          const actual = normAfterStep(wrapped(transformer(device, dtype, true)));
          const tolerance = dtype === float32 ? 1.3e-6 : 1e-3;
          assert.ok(
            Math.abs(actual - expected) <= 1e-5 + tolerance * expected,
            `${actual} ${expected}`,
          );
        }),
      );
    }

    const metadata = (
      handle: FlatParamHandle,
      start: number,
      end: number,
    ): FlatParamShardMetadata => {
      handle.flatParam._shardParamInfos = handle._getShardMetadata(start, end);
      return handle.shardMetadata();
    };

    it(
      'seed 003.9: metadata of shards counts the alignment of full precision',
      withRanks(1, () => {
        const module = new nn.Sequential(
          new nn.Linear(3, 7, { bias: false }),
          new nn.Linear(7, 5, { bias: false }),
          new nn.Linear(5, 5, { bias: false }),
        );
        const handle = new FlatParamHandle([...module.parameters()], module, {
          ...config(device),
          useOrigParams: true,
        });
        // 21 + (3) + 35 + (1) + 25
        assert.equal(handle.flatParam.numel(), 85);
        assert.deepEqual(
          metadata(handle, 0, 42),
          new FlatParamShardMetadata({
            paramNames: ['0.weight', '1.weight'],
            paramShapes: [
              [7, 3],
              [5, 7],
            ],
            paramNumels: [21, 35],
            paramOffsets: [
              [0, 20],
              [0, 18],
            ],
          }),
        );
        assert.deepEqual(
          metadata(handle, 43, 85),
          new FlatParamShardMetadata({
            paramNames: ['1.weight', '2.weight'],
            paramShapes: [
              [5, 7],
              [5, 5],
            ],
            paramNumels: [35, 25],
            paramOffsets: [
              [19, 34],
              [0, 24],
            ],
          }),
        );
      }),
    );

    it(
      'seed 003.10: metadata of shards counts the alignment of mixed precision',
      withRanks(1, () => {
        const module = new nn.Sequential(
          new nn.Linear(2, 5, { bias: false }),
          new nn.Linear(5, 5, { bias: false }),
          new nn.Linear(5, 3, { bias: false }),
        );
        const handle = new FlatParamHandle([...module.parameters()], module, {
          ...config(device),
          useOrigParams: true,
          mpParamDtype: float16,
        });
        // 10 + (6) + 25 + (7) + 15
        assert.equal(handle.flatParam.numel(), 63);
        assert.deepEqual(
          metadata(handle, 0, 31),
          new FlatParamShardMetadata({
            paramNames: ['0.weight', '1.weight'],
            paramShapes: [
              [5, 2],
              [5, 5],
            ],
            paramNumels: [10, 25],
            paramOffsets: [
              [0, 9],
              [0, 15],
            ],
          }),
        );
        assert.deepEqual(
          metadata(handle, 32, 63),
          new FlatParamShardMetadata({
            paramNames: ['1.weight', '2.weight'],
            paramShapes: [
              [5, 5],
              [3, 5],
            ],
            paramNumels: [25, 15],
            paramOffsets: [
              [16, 24],
              [0, 14],
            ],
          }),
        );
      }),
    );
  });
