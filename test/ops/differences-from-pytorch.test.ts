/**
 * Differences from PyTorch on purpose: one case for each row of docs/differences-from-pytorch.md.
 */
import assert from 'node:assert/strict';
import {
  CommDebugMode,
  checkpoint,
  DistributedDataParallel,
  DTensor,
  fullyShard,
  launch,
} from '../../lib/distributed.js';
import * as shardwise from '../../lib/index.js';
import {
  ArgumentError,
  arange,
  DtypeError,
  FreedError,
  float32,
  IndexError,
  int64,
  manualSeed,
  nn,
  noGrad,
  ones,
  rand,
  ShapeError,
  type Tensor,
  tensor,
  uint8,
  zeros,
} from '../../lib/index.js';

const whole = (data: number | number[]): Tensor => tensor(data, { dtype: int64 });
const mask = (): Tensor => tensor([true, false]);
const turned = (): Tensor => arange(6, { dtype: float32 }).view(3, 2).t();

const cases: Record<string, () => unknown> = {
  'tensors have no operators and no elements by number': () => {
    const [a, b] = [ones([2]), ones([2])];
    assert.throws(() => (a as unknown as number) + (b as unknown as number), ArgumentError);
    assert.throws(() => a[0], IndexError);
  },
  'backward never changes a gradient that it is given': () => {
    const x = zeros([2, 1], { requiresGrad: true });
    const given = ones([1, 2]);
    for (let pass = 0; pass < 2; pass++) x.t().backward(given);
    assert.deepEqual(given.tolist(), [[1, 1]]);
  },
  'a hook on several tensors receives no gradient': () => {
    const x = ones([2], { requiresGrad: true });
    const seen: unknown[][] = [];
    shardwise.autograd.registerMultiGradHook([x], (...given) => void seen.push(given));
    x.sum().backward();
    assert.deepEqual(seen, [[]]);
  },
  'requiresGrad of a view says whether a gradient flows': () => {
    const x = zeros([2], { requiresGrad: true });
    assert.equal(noGrad(() => x.select(0, 0)).requiresGrad, false);
  },
  'hooks of a view survive an in-place change': () => {
    const x = ones([2], { requiresGrad: true });
    const view = x.select(0, 0);
    let calls = 0;
    view.registerHook(() => void calls++);
    noGrad(() => x.mul_(2));
    view.backward();
    assert.equal(calls, 1);
  },
  'the norm of 16-bit gradients is float32': () => {
    const x = zeros([2], { requiresGrad: true, dtype: 'float16' });
    x.sum().backward();
    assert.equal(nn.utils.clipGradNorm_([x], 1).dtype, float32);
  },
  'what a function stores elsewhere under checkpoint is freed': () => {
    let stored: Tensor | null = null;
    const x = ones([2], { requiresGrad: true });
    checkpoint((t: Tensor) => {
      stored = t.mul(2);
      return t.exp();
    }, x);
    assert.throws(() => stored?.tolist(), FreedError);
  },
  'gradients lie in buckets by default, and are zero where no rank uses a parameter': () =>
    launch(1, async () => {
      const [used, unused] = [new nn.Linear(2, 2), new nn.Linear(2, 2)];
      class Half extends nn.Module {
        layers = new nn.ModuleList([used, unused]);
        forward(x: Tensor): Tensor {
          return used(x);
        }
      }
      const ddp = new DistributedDataParallel(new Half(), { findUnusedParameters: true });
      ddp(ones([1, 2]))
        .sum()
        .backward();
      const [first, second] = [used, unused].map(({ weight }) => weight.grad as Tensor);
      assert.equal(first?.untypedStorage(), second?.untypedStorage());
      assert.deepEqual([...((await second?.read()) ?? [])], [0, 0, 0, 0]);
    }),
  'sharded parameters are in modules outside of forward, and in the graph': () =>
    launch(1, () => {
      const model = fullyShard(new nn.Linear(2, 2), { reshardAfterForward: false });
      const { weight } = model;
      let hooks = 0;
      weight.registerHook(() => void hooks++);
      const loss = model(ones([1, 2])).sum();
      assert.equal(model.weight, weight);
      const [grad] = shardwise.autograd.grad(loss, [weight]);
      assert.ok(grad instanceof DTensor);
      assert.equal(hooks, 1);
    }),
  'a sharded forward without gradients frees whole parameters': () =>
    launch(1, () => {
      const model = fullyShard(new nn.Linear(2, 2), { reshardAfterForward: false });
      const forward = (): Record<string, number> => {
        const mode = new CommDebugMode();
        mode.run(() => void noGrad(() => model(ones([1, 2]))));
        return mode.getCommCounts() as never;
      };
      assert.deepEqual(forward(), forward());
    }),
  'powers of -inf equal those of C': () =>
    assert.deepEqual(
      [0.5, -0.5].map((p) => tensor(Number.NEGATIVE_INFINITY).pow(p).item()),
      [Number.POSITIVE_INFINITY, 0],
    ),
  'numbers become float32 tensors': () => assert.equal(tensor([1, 2]).dtype, float32),
  'a whole number keeps an integer tensor an integer': () =>
    assert.equal(whole([1]).mul(2).dtype, int64),
  'int64 elements are read exactly as bigints': () => {
    assert.equal(whole(3).item(), 3);
    assert.equal(
      whole(2 ** 53)
        .add(1)
        .item(),
      2n ** 53n + 1n,
    );
    assert.ok(whole([3]).toTypedArray() instanceof BigInt64Array);
  },
  'float16 elements are read as float32': () =>
    assert.ok(tensor([1]).half().toTypedArray() instanceof Float32Array),
  'random numbers depend on the index of the element': () => {
    manualSeed(1);
    const long = rand([6]);
    manualSeed(1);
    assert.deepEqual(rand([3]).tolist(), long.narrow(0, 0, 3).tolist());
  },
  'bools minus integers are integers': () => {
    assert.deepEqual(
      tensor([true])
        .sub(whole([1]))
        .tolist(),
      [0],
    );
    assert.deepEqual(tensor([true]).sub(1).dtype, int64);
    assert.throws(() => tensor([true]).sub(tensor([true])), DtypeError);
  },
  'indexPut converts its values': () =>
    assert.deepEqual(
      ones([2])
        .indexPut([whole([0])], whole([2]))
        .tolist(),
      [2, 1],
    ),
  'functions of floats convert integers': () => {
    assert.deepEqual(shardwise.addcdiv(whole([1]), whole([1]), whole([2])).tolist(), [1.5]);
    assert.deepEqual(
      whole([1])
        .lerp(whole([2]), 0.5)
        .tolist(),
      [1.5],
    );
    assert.deepEqual(
      whole([3])
        .hypot(whole([4]))
        .tolist(),
      [5],
    );
  },
  'kernels take all dtypes': () => {
    assert.equal(mask().argmax().item(), 0);
    assert.deepEqual(mask().topk(1).values.tolist(), [true]);
    assert.deepEqual(mask().relu().tolist(), [true, false]);
    assert.equal(mask().dot(mask()).item(), true);
    assert.equal(whole([1]).softmax(0).dtype, float32);
  },
  'maskedFill broadcasts its value': () =>
    assert.deepEqual(
      zeros([2])
        .maskedFill(mask(), tensor([1, 2]))
        .tolist(),
      [1, 0],
    ),
  'chunks may be changed in place': () => {
    const x = ones([4], { requiresGrad: true });
    const y = x.mul(1);
    y.split(2)[0]?.mul_(2);
    y.unbind()[3]?.mul_(3);
    y.sum().backward();
    assert.deepEqual(x.grad?.tolist(), [2, 2, 1, 3]);
  },
  'SGD can be capturable': () => {
    const p = ones([1], { requiresGrad: true });
    p.grad = ones([1]);
    const optimizer = new shardwise.optim.SGD([p], { lr: 1, momentum: 0.5, capturable: true });
    optimizer.step();
    const { step } = optimizer.state.get(p) as Record<string, Tensor>;
    assert.equal(step?.item(), 1);
  },
  'numbers that a dtype does not hold are refused': () => {
    assert.throws(() => zeros([2], { dtype: uint8 }).maskedFill(mask(), -1), ArgumentError);
    assert.throws(() => shardwise.full([1], -1, { dtype: uint8 }), ArgumentError);
  },
  'indexSelect accepts one index on a 0-dim tensor': () => {
    assert.throws(() => tensor(3).indexSelect(0, whole([])), ShapeError);
    assert.throws(() => tensor(3).indexSelect(0, whole([0, 0])), ShapeError);
  },
  'wrong indices into empty tensors are refused': () => {
    assert.throws(() => zeros([3, 0]).index([whole([7])]), IndexError);
    assert.throws(() => zeros([3, 0]).indexPut([whole([7])], zeros([1, 0])), IndexError);
  },
  'out must have the shape of the result': () =>
    assert.throws(() => shardwise.add(ones([2]), 1, { out: zeros([3]) }), ShapeError),
  'the median of an empty integer tensor is refused': () =>
    assert.throws(() => whole([]).median(), IndexError),
  'bytes are not viewed as bools': () =>
    assert.throws(() => tensor([2], { dtype: uint8 }).view('bool'), DtypeError),
  'asStrided of an overlapping input has no gradient': () =>
    assert.throws(
      () => ones([1, 3], { requiresGrad: true }).expand(2, 3).asStrided([2], [1]),
      ArgumentError,
    ),
  'loadStateDict copies nothing into a module on meta': () =>
    assert.throws(
      () =>
        new shardwise.nn.Linear(2, 2, { device: 'meta' }).loadStateDict(
          new shardwise.nn.Linear(2, 2).stateDict(),
        ),
      shardwise.CheckpointError,
    ),
  'mixed layouts give row-major results': () => {
    assert.deepEqual(
      turned()
        .add(ones([3]))
        .stride(),
      [3, 1],
    );
    assert.deepEqual(turned().sort(1).values.stride(), [3, 1]);
    assert.deepEqual(ones([2, 2]).nonzero().stride(), [2, 1]);
    assert.deepEqual(turned().mul(turned()).stride(), [1, 2]);
  },
  'gradients at 0 are finite': () => {
    const [a, b, target] = [
      zeros([1], { requiresGrad: true }),
      zeros([1], { requiresGrad: true }),
      zeros([1], { requiresGrad: true }),
    ];
    a.hypot(b).backward();
    shardwise.nn.functional.klDiv(ones([1]), target, { reduction: 'sum' }).backward();
    for (const t of [a, b, target]) assert.ok(Number.isFinite(t.grad?.item()));
  },
  'inferenceMode is noGrad': () => {
    const w = ones([2], { requiresGrad: true });
    const made = shardwise.inferenceMode(() => ones([2]).mul(3));
    w.mul(made).sum().backward();
    assert.deepEqual(w.grad?.tolist(), [3, 3]);
  },
  'broadcastTensors gives views': () => {
    const x = ones([2]);
    assert.ok(shardwise.broadcastTensors(x, x)[0]?._base === x);
  },
};

describe('unlike PyTorch on purpose,', () => {
  for (const [name, check] of Object.entries(cases)) it(name, check);
});
