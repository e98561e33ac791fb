/**
 * Compiled models that fullyShard shards, and compiled functions that it needs, as PyTorch's
 * test/distributed/_composable/fsdp/test_fully_shard_compile.py requires them.
 */
import assert from 'node:assert/strict';
import { FSDPParamGroup, TrainingState } from '../../lib/distributed.js';
import { add, compile, library, nn, ops, type Tensor, zeros } from '../../lib/index.js';
import { CompileCounterWithBackend, withRanks } from '../../lib/testing/index.js';
import { CASES, RANKS } from './000-compiled-models.js';
import { BACKENDS, FULL, leavesNoMemory } from './compiled.js';

const addOneInto = library.customOp(
  'seed000::add_one_into',
  { mutatesArgs: [1] },
  (x: Tensor, out: Tensor) => {
    add(x, 1, { out });
  },
);
// PyTorch reads from the annotation of the function that it returns nothing.
addOneInto.registerFake(() => {});

for (const backend of BACKENDS)
  describe(`seed 000, backend ${backend}`, () => {
    leavesNoMemory();

    it('seed 000.2: a group of nothing has a training state, which comes back', () => {
      const group = new FSDPParamGroup([], new nn.Linear(1, 1), null, null, null, null, null);
      const f = (x: Tensor, fails: boolean): Tensor => {
        group.trainingState = TrainingState.IDLE;
        return group.useTrainingState(TrainingState.FORWARD, () => {
          if (fails) throw new Error('inside');
          return group.trainingState === TrainingState.FORWARD ? x.add(1) : x;
        });
      };
      const isIdle = (): void => assert.equal(group.trainingState, TrainingState.IDLE);
      const counter = CompileCounterWithBackend(backend);
      const compiled = compile(f, { ...FULL, backend: counter });
      isIdle();
      for (const run of [f, compiled, compiled]) {
        assert.deepEqual(run(zeros([1]), false).tolist(), [1]);
        isIdle();
      }
      assert.deepEqual([counter.frameCount, counter.opCount, counter.graphs.length], [1, 1, 1]);
      assert.throws(() => compiled(zeros([1]), true), /inside/);
      isIdle();
    });

    it('seed 000.3: fsdp.set_ gives the memory of a view to an argument', () => {
      const f = (x: Tensor): void => {
        const buffer = zeros([2]);
        addOneInto(x, buffer.view([-1]));
        ops.fsdp.set_(x, buffer.view([-1]));
      };
      const counter = CompileCounterWithBackend(backend);
      const compiled = compile(f, { ...FULL, backend: counter });
      for (const value of [0, 0, 5]) {
        const [wanted, x] = [zeros([2]).fill_(value), zeros([2]).fill_(value)];
        const [old, storage] = [x.view([2]), x.untypedStorage()];
        f(wanted);
        compiled(x);
        assert.deepEqual(x.tolist(), [value + 1, value + 1]);
        assert.deepEqual(x.tolist(), wanted.tolist());
        assert.notEqual(x.untypedStorage(), storage);
        assert.deepEqual(old.tolist(), [value, value]);
        assert.equal(x._version, wanted._version);
      }
      assert.equal(counter.frameCount, 1);
    });
  });

/** Every rank loads the library first, which takes long on a busy machine. */
const PROCESSES = { mode: 'process', timeoutMs: 120_000 } as const;

describe('a compiled model that fullyShard shards', () => {
  leavesNoMemory();

  for (const { title, run } of CASES)
    it(
      title,
      withRanks(RANKS, (rank, ranks) => run({ rank, ranks, device: 'cpu', isProcess: false })),
    );

  it(
    'seed 000.1 to 000.9: all are the same on ranks that are processes',
    withRanks(
      RANKS,
      async (rank, ranks) => {
        for (const { run } of CASES) await run({ rank, ranks, device: 'cpu', isProcess: true });
      },
      PROCESSES,
    ),
  );
});
