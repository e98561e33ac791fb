/**
 * Cross entropy of logits that are sharded along their classes.
 */
import assert from 'node:assert/strict';
import {
  CommDebugMode,
  DTensor,
  distributeTensor,
  initDeviceMesh,
  lossParallel,
  Replicate,
  Shard,
} from '../../lib/distributed.js';
import {
  bfloat16,
  type CrossEntropyOptions,
  crossEntropy,
  float32,
  float64,
  manualSeed,
  nn,
  rand,
  randn,
  ShardingError,
  type Tensor,
  tensor,
} from '../../lib/index.js';
import { withRanks } from '../../lib/testing/index.js';
import { assertClose, placementsOf } from './compare.js';

const CLASSES = 7;
const targets = ({ ignoreIndex = -100 }: CrossEntropyOptions = {}): Tensor =>
  tensor([0n, 6n, 3n, BigInt(ignoreIndex), 2n, 6n]);
const logits = (): Tensor => {
  manualSeed(11);
  return randn([6, CLASSES], { dtype: float64 }).mul(3);
};

const cases: Record<string, CrossEntropyOptions> = {
  'the mean': {},
  'the sum': { reduction: 'sum' },
  'each row': { reduction: 'none' },
  'another ignored target': { ignoreIndex: 6, reduction: 'sum' },
  'weights of classes': { weight: tensor([1, 2, 3, 4, 5, 6, 7], { dtype: float64 }) },
  'label smoothing': { labelSmoothing: 0.2 },
  'label smoothing with weights': {
    labelSmoothing: 0.2,
    weight: tensor([1, 2, 3, 4, 5, 6, 7], { dtype: float64 }),
  },
};

describe('lossParallel', () => {
  for (const [name, options] of Object.entries(cases)) {
    it(
      `needs two all-reduces in forward and none in backward: ${name}`,
      withRanks(3, async () => {
        const mesh = initDeviceMesh('cpu', [3], { meshDimNames: ['tp'] });
        const x = logits().requiresGrad_();
        const d = distributeTensor(logits(), mesh, [Shard(-1)]).requiresGrad_();
        const { weight = null } = options;
        const own = {
          ...options,
          weight: weight === null ? null : tensor([1, 2, 3, 4, 5, 6, 7], { dtype: float64 }),
        };
        const comm = new CommDebugMode();
        const loss = comm.run(() => lossParallel(() => crossEntropy(d, targets(own), own)));
        assert.deepEqual(comm.getCommCounts(), { allReduce: 2 });
        // The largest logit of each row, and the sums that the rows are made of.
        assert.deepEqual(
          comm.events.map(({ bytes }) => bytes),
          [6 * 8, (options.labelSmoothing === undefined ? 2 : 3) * 6 * 8],
        );
        assert.equal(placementsOf(loss), '[Replicate()]');
        const expected = crossEntropy(x, targets(own), own);
        await assertClose(loss, expected, 'the loss');
        comm.reset();
        comm.run(() => loss.sum().backward());
        assert.equal(comm.getTotalCounts(), 0);
        expected.sum().backward();
        assert.equal(placementsOf(d.grad), '[Shard(1)]');
        await assertClose(d.grad as Tensor, x.grad as Tensor, 'the gradient');
      }),
    );
  }

  it(
    'works with the module, classes in dim 1, low precision, sharded rows, and backward inside',
    withRanks(4, async () => {
      const mesh = initDeviceMesh('cpu', [2, 2], { meshDimNames: ['dp', 'tp'] });
      const x = logits().requiresGrad_();
      const d = distributeTensor(logits(), mesh, [Shard(0), Shard(1)]).requiresGrad_();
      const t = distributeTensor(targets(), mesh, [Shard(0), Replicate()]);
      const loss = lossParallel(() => {
        const value = new nn.CrossEntropyLoss()(d, t);
        value.backward();
        return value;
      });
      const expected = crossEntropy(x, targets());
      expected.backward();
      await assertClose(loss, expected, 'the loss');
      await assertClose(d.grad as Tensor, x.grad as Tensor, 'the gradient');
      const images = rand([2, 5, 3], { dtype: float64 });
      const labels = tensor([
        [0n, 1n, 4n],
        [3n, 2n, 0n],
      ]);
      const tp = mesh.get('tp');
      await assertClose(
        lossParallel(() => crossEntropy(distributeTensor(images, tp, [Shard(1)]), labels)),
        crossEntropy(images, labels),
        'classes in dim 1',
      );
      const low = logits().to(bfloat16);
      const half = lossParallel(() =>
        crossEntropy(distributeTensor(low, tp, [Shard(1)]), targets()),
      );
      assert.equal(half.dtype, bfloat16);
      await assertClose(
        half.to(float32),
        crossEntropy(low, targets()).to(float32),
        'low precision',
        0.02,
      );
    }),
  );

  it(
    'refuses what would gather the logits, and asynchronous functions; ignores plain logits',
    withRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2], { meshDimNames: ['tp'] });
      const cut = distributeTensor(logits(), mesh, [Shard(1)]);
      const refused = (fn: () => Tensor, message: RegExp): void =>
        assert.throws(
          () => lossParallel(fn),
          (error) => error instanceof ShardingError && message.test(error.message),
        );
      refused(
        () => crossEntropy(distributeTensor(logits(), mesh, [Shard(0)]), targets()),
        /the logits are not sharded along their classes \(dim 1\): .*Shard\(0\).*ColwiseParallel/,
      );
      refused(
        () => crossEntropy(cut, DTensor.fromLocal(logits().softmax(1), mesh)),
        /takes class indices, got class probabilities/,
      );
      const weight = rand([CLASSES], { dtype: float64 });
      refused(
        () => crossEntropy(cut, targets(), { weight: distributeTensor(weight, mesh, [Shard(0)]) }),
        /a weight that is replicated/,
      );
      refused(
        () => crossEntropy(cut, targets(), { weight: weight.clone().requiresGrad_() }),
        /requires a gradient/,
      );
      assert.throws(
        () => crossEntropy(cut, targets()),
        /expected distributed tensors, got a plain one/,
      );
      assert.throws(() => lossParallel(async () => {}), /expected a synchronous function/);
      await assertClose(
        lossParallel(() => crossEntropy(logits(), targets())),
        crossEntropy(logits(), targets()),
        'plain logits',
        0,
      );
      assert.throws(
        () => lossParallel(() => lossParallel(() => crossEntropy(cut, targets()), false)),
        /expected distributed tensors/,
      );
    }),
  );
});
