/**
 * Cross entropy of logits that are sharded along their classes.
 */
import assert from 'node:assert/strict';
import { compile, FakeTensorMode } from '../../lib/compile/index.js';
import {
  CommDebugMode,
  DTensor,
  destroyProcessGroup,
  distributeTensor,
  initDeviceMesh,
  initProcessGroup,
  lossParallel,
  type Placement,
  Replicate,
  Shard,
} from '../../lib/distributed.js';
import {
  autograd,
  bfloat16,
  type CrossEntropyOptions,
  crossEntropy,
  float32,
  float64,
  manualSeed,
  memory,
  nn,
  rand,
  randint,
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

/** The options with a weight that the rank has made. */
const ownOptions = (options: CrossEntropyOptions): CrossEntropyOptions =>
  options.weight
    ? { ...options, weight: tensor([1, 2, 3, 4, 5, 6, 7], { dtype: float64 }) }
    : options;

describe('lossParallel', () => {
  for (const [name, options] of Object.entries(cases)) {
    it(
      `needs two all-reduces in forward and none in backward: ${name}`,
      withRanks(3, async () => {
        const mesh = initDeviceMesh('cpu', [3], { meshDimNames: ['tp'] });
        const x = logits().requiresGrad_();
        const d = distributeTensor(logits(), mesh, [Shard(-1)]).requiresGrad_();
        const own = ownOptions(options);
        const comm = new CommDebugMode();
        const loss = comm.run(() => lossParallel(() => crossEntropy(d, targets(own), own)));
        assert.deepEqual(comm.getCommCounts(), { allReduce: 2 });
        // The largest lse of the shards of each row, and two sums.
        assert.deepEqual(
          comm.events.map(({ bytes }) => bytes),
          [6 * 8, 2 * 6 * 8],
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

  const uneven: [shape: number[], placements: Placement[]][] = [
    [[1], [Shard(1)]],
    [[5], [Shard(1)]],
    [
      [2, 3],
      [Shard(1), Shard(1)],
    ],
    [
      [2, 1, 2],
      [Shard(1), Shard(0), Shard(1)],
    ],
  ];
  for (const [shape, placements] of uneven) {
    it(
      `takes shards of uneven sizes and without classes: ${placements} on [${shape}]`,
      withRanks(
        shape.reduce((a, b) => a * b, 1),
        async () => {
          const mesh = initDeviceMesh('cpu', shape);
          const weight = (): Tensor => rand([CLASSES], { dtype: float64 });
          manualSeed(2);
          const options = { labelSmoothing: 0.2, ignoreIndex: 2, weight: weight() };
          const x = logits().requiresGrad_();
          const d = distributeTensor(logits(), mesh, placements).requiresGrad_();
          const loss = lossParallel(() => crossEntropy(d, targets(options), options));
          const expected = crossEntropy(x, targets(options), options);
          await assertClose(loss, expected, 'the loss');
          loss.backward();
          expected.backward();
          assert.equal(placementsOf(d.grad), `[${placements.join(', ')}]`);
          await assertClose(d.grad as Tensor, x.grad as Tensor, 'the gradient');
        },
      ),
    );
  }

  for (const [name, options] of Object.entries(cases))
    it(
      `has the second derivatives of the whole loss: ${name}`,
      withRanks(2, async () => {
        const mesh = initDeviceMesh('cpu', [2]);
        const own = ownOptions(options);
        const second = (x: Tensor): Tensor => {
          const [g] = autograd.grad(crossEntropy(x, targets(own), own).sum(), x, {
            createGraph: true,
          }) as [Tensor];
          return autograd.grad(g.sin().sum(), x)[0] as Tensor;
        };
        const d = distributeTensor(logits(), mesh, [Shard(1)]).requiresGrad_();
        const got = lossParallel(() => second(d));
        await assertClose(got, second(logits().requiresGrad_()), 'the second derivative');
      }),
    );

  for (const [name, options] of Object.entries(cases))
    it(
      `is as near to float64 as the whole loss where logits are large: ${name}`,
      withRanks(3, async () => {
        const mesh = initDeviceMesh('cpu', [3]);
        const own = ownOptions(options);
        const x = logits()
          .add(tensor([1e4, -1e4, 1e4, 0, -3e4, 3e4]).unsqueeze(1))
          .to(float32);
        const d = distributeTensor(x, mesh, [Shard(1)]);
        const exact = crossEntropy(x.to(float64), targets(own), own);
        const narrow = own.weight ? { ...own, weight: own.weight.to(float32) } : own;
        const whole = crossEntropy(x, targets(own), narrow);
        assert.equal(whole.dtype, float32);
        const loss = lossParallel(() => crossEntropy(d, targets(own), narrow));
        assert.equal(loss.dtype, float32);
        for (const [what, t] of [
          ['whole', whole],
          ['of shards', loss],
        ] as const)
          await assertClose(t.to(float64), exact, what, 1e-5 * (options.weight ? 7 : 1));
      }),
    );

  it(
    'takes no memory but the gradient, in the dtype of the logits',
    withRanks(4, async () => {
      const mesh = initDeviceMesh('cpu', [4]);
      const [rows, classes] = [64, 4096];
      for (const labelSmoothing of [0, 0.1]) {
        const local = rand([rows, classes / 4]).to(bfloat16);
        const d = DTensor.fromLocal(local, mesh, [Shard(1)]).requiresGrad_();
        const target = randint(0, classes, [rows]);
        memory.collect();
        const before = memory.stats().allocatedBytes;
        memory.resetPeak();
        lossParallel(() => crossEntropy(d, target, { labelSmoothing })).backward();
        const growth = memory.stats().peakAllocatedBytes - before;
        assert.equal(d.grad?.dtype, bfloat16);
        const allowed = local.nbytes + 18 * rows * 8; // numbers of each row
        assert.ok(growth <= allowed, `${growth} bytes, expected at most ${allowed}`);
      }
    }),
  );

  it('takes logits and their gradient in a simulated world', async () => {
    await initProcessGroup('fake', { rank: 3, worldSize: 8 });
    try {
      const mode = new FakeTensorMode();
      const peak = mode.run(() => {
        const mesh = initDeviceMesh('cpu', [8]);
        const local = randn([512, 1000], { dtype: bfloat16 });
        const d = DTensor.fromLocal(local, mesh, [Shard(1)]).requiresGrad_();
        const target = randint(0, 8000, [512]);
        lossParallel(() => crossEntropy(d, target)).backward();
        return mode.memory.stats().peak.total / local.nbytes;
      });
      assert.ok(peak < 2.1, `${peak} times the logits`);
    } finally {
      destroyProcessGroup();
    }
  });

  it(
    'is captured as it runs uncompiled',
    withRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2]);
      const loss = (local: Tensor, target: Tensor): Tensor => {
        const d = DTensor.fromLocal(local, mesh, [Shard(1)]);
        return (lossParallel(() => crossEntropy(d, target)) as DTensor).toLocal();
      };
      const compiled = compile(loss, { fullgraph: true });
      for (let call = 0; call < 3; call++) {
        const x = randn([6, 4], { dtype: float64 });
        const [got, expected] = [compiled, loss].map((fn) => {
          const leaf = x.clone().requiresGrad_();
          const value = fn(leaf, targets());
          value.backward();
          return [value, leaf.grad] as [Tensor, Tensor];
        }) as [[Tensor, Tensor], [Tensor, Tensor]];
        await assertClose(got[0], expected[0], 'the loss');
        await assertClose(got[1], expected[1], 'the gradient');
      }
    }),
  );

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
