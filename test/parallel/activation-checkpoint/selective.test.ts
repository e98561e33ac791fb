/** Selective checkpoints keep the results of chosen ops. Reference: PyTorch. */
import assert from 'node:assert/strict';
import { FakeTensorMode } from '../../../lib/compile/index.js';
import {
  CheckpointPolicy,
  checkpoint,
  createSelectiveCheckpointContexts,
  distributeTensor,
  initDeviceMesh,
  type SelectiveCheckpointPolicy,
  Shard,
} from '../../../lib/distributed.js';
import { float64, library, noGrad, randn, scope, type Tensor } from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';

const leaf = (shape: number[]): Tensor => randn(shape, { dtype: float64 }).requiresGrad_();

/** The names of the ops that `fn` calls. */
function opsOf(fn: () => void): string[] {
  const names: string[] = [];
  library.withDispatchMode((call) => {
    names.push(call.op);
    return call.run();
  }, fn);
  return names;
}
const count = (names: readonly string[], op: string): number =>
  names.filter((name) => name === op).length;

const fn = (x: Tensor, w: Tensor): Tensor => x.matmul(w).tanh().matmul(w).exp().matmul(w).sum();
const selective = (policy: SelectiveCheckpointPolicy | string[], options = {}) => ({
  contextFn: () => createSelectiveCheckpointContexts(policy, options),
});

describe('createSelectiveCheckpointContexts', () => {
  it('keeps the results of ops by name: backward does not run them again', () => {
    const [x, w] = [leaf([3, 3]), leaf([3, 3])];
    const grads = (): unknown => {
      const found = [x.grad?.tolist(), w.grad?.tolist()];
      x.grad = null;
      w.grad = null;
      return found;
    };
    const plain = fn(x, w);
    const inBackward = count(
      opsOf(() => plain.backward()),
      'matmul',
    );
    const expected = grads();
    const recomputing = checkpoint(fn, x, w);
    assert.equal(
      count(
        opsOf(() => recomputing.backward()),
        'matmul',
      ),
      inBackward + 2, // backward does not need the result of the last
    );
    assert.deepEqual(grads(), expected);
    const keeping = checkpoint(fn, x, w, selective(['matmul']));
    const again = opsOf(() => keeping.backward());
    assert.equal(count(again, 'matmul'), inBackward);
    assert.equal(count(again, 'tanh'), 1);
    assert.deepEqual(grads(), expected);
  });

  it('asks a policy in both runs, with the op and its tensors', () => {
    const asked: [boolean, string, number][] = [];
    const policy: SelectiveCheckpointPolicy = ({ isRecompute }, op, ...inputs) => {
      asked.push([isRecompute, op, inputs.length]);
      return op === 'exp' ? CheckpointPolicy.MUST_SAVE : CheckpointPolicy.PREFER_RECOMPUTE;
    };
    const x = leaf([3]);
    checkpoint((t: Tensor) => t.exp().sin().mul(t).sum(), x, selective(policy)).backward();
    assert.deepEqual(asked, [
      [false, 'exp', 1],
      [false, 'sin', 1],
      [false, 'mul', 2],
      [false, 'sum', 1],
      [true, 'exp', 1],
      [true, 'sin', 1],
    ]);
    assert.ok(x.grad);
  });

  it('serves each backward pass of a retained graph, inside scopes too', () => {
    const x = leaf([3]);
    scope(() => {
      const y = checkpoint(
        (t: Tensor) => scope(() => t.exp().sin().sum()),
        x,
        selective(['exp', 'sin']),
      );
      y.backward(undefined, { retainGraph: true });
      y.backward();
    });
    const expected = noGrad(() => x.exp().cos().mul(x.exp()).mul(2));
    assert.ok((x.grad as Tensor).allclose(expected));
  });

  it(
    'keeps results of distributed tensors',
    withRanks(2, async () => {
      const mesh = initDeviceMesh('cpu', [2]);
      const x = distributeTensor(leaf([4, 3]), mesh, [Shard(0)]);
      const w = distributeTensor(leaf([3, 3]), mesh);
      const gradOf = async (): Promise<string> => {
        const { grad } = w;
        w.grad = null;
        return (await (grad as Tensor).fullTensor().read()).join();
      };
      fn(x, w).backward();
      const expected = await gradOf();
      checkpoint(fn, x, w, selective(['matmul'])).backward();
      assert.equal(await gradOf(), expected);
    }),
  );

  it('takes the memory of the results that it keeps, and no more', () => {
    const activations = (options?: object): number => {
      const mode = new FakeTensorMode();
      mode.run(() => {
        const w = randn([64, 64]).requiresGrad_();
        let h: Tensor = randn([32, 64]);
        const block = (t: Tensor): Tensor => t.matmul(w).tanh().exp().matmul(w).add(t);
        const calls = Array.from({ length: 4 });
        for (const _ of calls)
          h = options === undefined ? checkpoint(block, h) : checkpoint(block, h, options);
        const before = mode.memory.stats().current.activations;
        h.sum().backward();
        assert.equal(mode.memory.stats().current.activations, 0);
        h = h.detach();
        activationsNow = before;
      });
      return activationsNow;
    };
    let activationsNow = 0;
    const each = 32 * 64 * 4;
    assert.equal(activations(), 4 * each);
    // Of each block one result more: the last product belongs to `add`, which keeps nothing.
    assert.equal(activations(selective(['tanh'])), 8 * each);
  });

  it('refuses results that were changed in place, unless they may be', () => {
    const x = leaf([3]);
    const f = (t: Tensor): Tensor => {
      const y = t.mul(2);
      noGrad(() => y.detach().add_(1));
      return y.exp().sin().sum();
    };
    const y = checkpoint(f, x, selective(['mul']));
    assert.throws(() => y.backward(), { code: 'ERR_IN_PLACE' });
    checkpoint(f, x, selective(['mul'], { allowCacheEntryMutation: true }));
  });

  it('refuses a recomputation that keeps more, unknown ops and wrong policies', () => {
    const x = leaf([3]);
    const uneven: SelectiveCheckpointPolicy = ({ isRecompute }, op) => isRecompute && op === 'exp';
    const y = checkpoint((t: Tensor) => t.exp().sin().sum(), x, selective(uneven));
    assert.throws(() => y.backward(), /call 1 of exp, which the forward pass did not keep/);
    assert.throws(() => createSelectiveCheckpointContexts(['mamtul']), /no op "mamtul"/);
    assert.throws(() => createSelectiveCheckpointContexts(3 as never), /policy/);
    assert.throws(
      () =>
        checkpoint(
          fn,
          leaf([2, 2]),
          leaf([2, 2]),
          selective(() => 'SAVE' as never),
        ),
      /what policy returns/,
    );
  });
});
