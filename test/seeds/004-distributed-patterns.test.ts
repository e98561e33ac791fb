/** Patterns of distributed training as PyTorch's test_distributed_patterns.py requires them. */
import assert from 'node:assert/strict';
import {
  autograd,
  compile,
  InPlaceError,
  nn,
  noGrad,
  randn,
  type Tensor,
  tensor,
  zeros,
} from '../../lib/index.js';
import { CompileCounterWithBackend } from '../../lib/testing/index.js';
import { resizesAndFills, resizesToNothing } from './004-storages.js';
import { assertClose, BACKENDS, FULL, leavesNoMemory } from './compiled.js';

/** Writes into a tensor, and decides what becomes of its version. */
type Write = (w: Tensor, write: () => void) => void;

/** Compares values, gradients and kinds of tensors. */
function assertSame(results: readonly Tensor[], expected: readonly Tensor[]): void {
  const [seen, wanted] = [results, expected].map((list) =>
    list.map((t) => [
      t.constructor.name,
      t.tolist(),
      t.isLeaf ? (t.grad?.tolist() ?? null) : 'inner',
      t.requiresGrad,
      t.isLeaf,
    ]),
  );
  assert.deepEqual(seen, wanted);
}

for (const backend of BACKENDS)
  describe(`distributed patterns, backend ${backend}`, () => {
    leavesNoMemory();

    it('seed 004.2: a storage is resized to nothing after its last use', () =>
      resizesToNothing(backend, 'cpu'));

    it('seed 004.4: a storage of nothing is resized to the size of another, and filled', () =>
      resizesAndFills(backend, 'cpu'));

    it('seed 004.6: a version that is read is given back, in one frame for all versions', () => {
      const counter = CompileCounterWithBackend(backend);
      const fn = compile(
        (w: Tensor, given: Tensor) => {
          const x = given.sin();
          const v = w._version;
          w.copy_(x.add(1));
          autograd.unsafeSetVersionCounter(w, v);
          return [w, v] as const;
        },
        { ...FULL, backend: counter },
      );
      noGrad(() => {
        for (const version of [3, 0, 1, 7]) {
          const w = randn([16]);
          for (let i = 0; i < version; i++) w.fill_(i);
          assert.equal(w._version, version);
          const x = randn([16]);
          const [same, read] = fn(w, x);
          assert.equal(same, w);
          assert.deepEqual(w.tolist(), x.sin().add(1).tolist());
          assert.deepEqual([read, w._version], [version, version]);
          assert.equal(counter.frameCount, 1);
        }
      });
    });

    it('seed 004.8: the version of a tensor stays as it was', () => {
      const fn = compile(
        (w: Tensor, x: Tensor) => {
          const y = x.sin();
          autograd.unsafePreserveVersionCounter(w, () => w.copy_(y.add(1)));
          return w;
        },
        { ...FULL, backend },
      );
      noGrad(() => {
        for (const changes of [2, 0, 5]) {
          const w = zeros([16]);
          for (let i = 0; i < changes; i++) w.fill_(i);
          const x = randn([16]);
          assert.equal(fn(w, x), w);
          assert.deepEqual(w.tolist(), x.sin().add(1).tolist());
          assert.equal(w._version, changes);
        }
      });
    });

    const overrides: Record<string, readonly [title: string, write: Write]> = {
      '7': [
        'given back',
        (w, write) => {
          const version = w._version;
          write();
          autograd.unsafeSetVersionCounter(w, version);
        },
      ],
      '9': ['kept', (w, write) => autograd.unsafePreserveVersionCounter(w, write)],
    };
    for (const [number, [title, override]] of Object.entries(overrides))
      it(`seed 004.${number}: backward reads what was written if the version is ${title}`, () => {
        const counter = CompileCounterWithBackend(backend);
        const writing = (keep: Write) => (w: Tensor, x: Tensor) => {
          const r = w.sin();
          noGrad(() => keep(w, () => void w.copy_(x)));
          return r;
        };
        const fn = writing(override);
        const compiled = compile(fn, { ...FULL, backend: counter });
        for (const run of [fn, compiled, compiled, compiled]) {
          const [w, x] = [randn([1], { requiresGrad: true }), randn([1])];
          const [old, version] = [w.detach().clone(), w._version];
          const r = run(w, x);
          r.backward();
          assert.deepEqual(r.tolist(), old.sin().tolist());
          assert.deepEqual(w.tolist(), x.tolist());
          assert.equal(w._version, version);
          assertClose(w.grad?.tolist(), x.cos().tolist());
        }
        assert.equal(counter.frameCount, 1);
        const plain = writing((_, write) => write());
        for (const run of [plain, compile(plain, { ...FULL, backend })])
          assert.throws(
            () => run(randn([1], { requiresGrad: true }), randn([1])).backward(),
            InPlaceError,
          );
      });

    const parameters: Record<string, readonly [title: string, fn: (x: Tensor) => Tensor[]]> = {
      '14': [
        'a Parameter on the memory of an argument',
        (x) => {
          const p = new nn.Parameter(x);
          return [p, p.sin()];
        },
      ],
      '15': [
        'a Parameter on the memory of an argument, without a gradient',
        (x) => [new nn.Parameter(x, false), x.add(1)],
      ],
      '16': [
        'a Parameter on computed memory',
        (x) => {
          const p = new nn.Parameter(x.add(123));
          return [p, p.sin()];
        },
      ],
      '17': [
        'a Parameter on computed memory, without a gradient',
        (x) => [new nn.Parameter(x.add(123), false), x.add(1)],
      ],
    };
    for (const [number, [title, fn]] of Object.entries(parameters))
      it(`seed 004.${number}: ${title} is returned`, () => {
        const compiled = compile(fn, { ...FULL, backend });
        for (let call = 0; call < 3; call++) {
          const x = randn([16]);
          const [expected, results] = [fn, compiled].map((run) => {
            const given = x.clone();
            const made = run(given);
            const y = made[1] as Tensor;
            if (y.requiresGrad) y.sum().backward();
            noGrad(() => given.fill_(7));
            return made;
          }) as [Tensor[], Tensor[]];
          assertSame(results, expected);
          assert.ok(results[0] instanceof nn.Parameter);
        }
      });
  });

describe('distributed patterns', () => {
  leavesNoMemory();

  it('seed 004.8: the version stays as it was when the function throws', () => {
    const fn = compile(
      (w: Tensor, x: Tensor) =>
        autograd.unsafePreserveVersionCounter(w, () => {
          w.add_(1);
          return w.add(x);
        }),
      { ...FULL, backend: 'eager' },
    );
    const w = tensor([1, 2]);
    assert.throws(() => fn(w, zeros([3])));
    assert.equal(w._version, 0);
    assert.deepEqual(w.tolist(), [1, 2]);
  });
});
