/** Parameters that are gathered where modules use them, without copies, and those that are copied. */
import assert from 'node:assert/strict';
import { compiledAutograd, FakeTensorMode } from '../../../lib/compile/index.js';
import {
  CommDebugMode,
  CPUOffloadPolicy,
  destroyProcessGroup,
  fullyShard,
  initDeviceMesh,
  initProcessGroup,
  MixedPrecisionPolicy,
  Shard,
} from '../../../lib/distributed.js';
import {
  bfloat16,
  compile,
  float32,
  nn,
  noGrad,
  ones,
  profiler,
  type Tensor,
} from '../../../lib/index.js';
import { withRanks } from '../../../lib/testing/index.js';
import {
  adamOf,
  assertClose,
  batchOf,
  lossOf,
  partOf,
  trained,
  trainedAlone,
  trainStep,
  valuesOf,
} from './model.js';
import { newWideModel, shardedWide, type WideModel } from './wide-model.js';

type Options = Parameters<typeof fullyShard>[1];
const STEPS = 3;

/** The names of collectives and ops of `fn`, in the order of their calls. */
function namesOf(fn: () => void, pattern: RegExp): string[] {
  const prof = profiler.profile({ activities: ['cpu'] }, fn);
  return prof.events().flatMap(({ name }) => (pattern.test(name) ? [name] : []));
}

describe('large parameters of fullyShard', () => {
  const cases: readonly [string, number, () => Options][] = [
    ['of one rank', 1, () => ({})],
    ['of two ranks, with uneven rows', 2, () => ({})],
    ['of three ranks', 3, () => ({})],
    ['that are kept after forward', 2, () => ({ reshardAfterForward: false })],
    ['that groups of two ranks hold after forward', 4, () => ({ reshardAfterForward: 2 })],
    ['that each rank holds after forward', 2, () => ({ reshardAfterForward: 1 })],
    ['with shards on the CPU', 2, () => ({ offloadPolicy: new CPUOffloadPolicy() })],
    ['along dim 1', 2, () => ({ shardPlacementFn: (p) => (p.shape[1] === 6 ? Shard(1) : null) })],
    [
      'with replicas',
      4,
      () => ({ mesh: initDeviceMesh('cpu', [2, 2], { meshDimNames: ['r', 's'] }) }),
    ],
  ];
  for (const [what, ranks, options] of cases)
    it(
      `train as one device: ${what}`,
      withRanks(ranks, async (rank) => {
        const expected = await trainedAlone(STEPS, newWideModel());
        assertClose(
          await trained(shardedWide(newWideModel(), options()), rank, ranks, STEPS),
          expected,
        );
      }),
    );

  type Run = (call: () => void) => void;
  const compiled: Record<string, (model: WideModel) => Run> = {
    'as a whole': (model) => {
      model.compile();
      return (call) => call();
    },
    'by parts': (model) => {
      for (const part of [model.first, model.middle, model.last]) part.compile();
      return (call) => call();
    },
    'in backward': () => (call) => compiledAutograd.enable((graph) => compile(graph), call),
  };
  for (const [what, compiles] of Object.entries(compiled))
    it(
      `are read before backward frees them, kept after forward and compiled ${what}`,
      withRanks(2, async (rank) => {
        const expected = await trainedAlone(STEPS, newWideModel());
        const model = shardedWide(newWideModel(), { reshardAfterForward: false });
        const run = compiles(model);
        const adam = adamOf(model);
        for (let step = 0; step < STEPS; step++) run(() => trainStep(model, adam, step, rank, 2));
        assertClose(await valuesOf(model), expected);
      }),
    );

  it(
    'have the values of their dtype in compute, as copies have',
    withRanks(2, async () => {
      const mpPolicy = new MixedPrecisionPolicy({ paramDtype: bfloat16, reduceDtype: float32 });
      const plain = newWideModel('float32');
      const model = shardedWide(newWideModel('float32'), { mpPolicy });
      const seen: Tensor[] = [];
      model.first.down.registerForwardPreHook((down) => {
        seen.push(down.weight.detach().clone(), (down.bias as Tensor).detach().clone());
      });
      noGrad(() => lossOf(model, batchOf(0, float32)));
      for (const [i, p] of [plain.first.down.weight, plain.first.down.bias].entries())
        assert.deepEqual(
          [...(await (seen[i] as Tensor).read())],
          [...(await (p as Tensor).detach().to(bfloat16).read())],
        );
    }),
  );

  it(
    'are gathered with the copied ones of their group in one call',
    withRanks(2, (rank) => {
      const model = shardedWide(newWideModel());
      const mode = new CommDebugMode();
      mode.run(() => lossOf(model, partOf(batchOf(0), rank, 2)));
      assert.deepEqual(mode.getCommCounts(), { allGather: 3 });
    }),
  );
});

describe('copies of fullyShard', () => {
  beforeEach(async () => {
    await initProcessGroup('fake', { rank: 0, worldSize: 2 });
  });
  afterEach(() => destroyProcessGroup());

  const copies = /^(splitWithSizesCopy|foreachCopy|cat)$/; // the fake gather itself is a copy
  const linear = (options: Options, bias = false): nn.Linear => {
    const layer = new nn.Linear(256, 256, { bias });
    fullyShard(layer, options);
    return layer;
  };
  const forward = (layer: nn.Linear): (() => void) => {
    const x = ones([4, 256]);
    noGrad(() => layer(x)); // makes the flat shard
    return () => void noGrad(() => layer(x));
  };

  it('are none for a large parameter in the dtype of its shards', () => {
    assert.deepEqual(namesOf(forward(linear({})), copies), []);
  });

  it('are one for all small parameters of a group', () => {
    assert.deepEqual(namesOf(forward(linear({}, true)), copies), ['splitWithSizesCopy']);
  });

  it('are one that casts to the dtype of compute, into the memory of the whole parameter', () => {
    const mpPolicy = new MixedPrecisionPolicy({
      paramDtype: bfloat16,
      castForwardInputs: false,
    });
    const layer = fullyShard(new nn.Linear(256, 256, { bias: false }), { mpPolicy });
    const x = ones([4, 256], { dtype: bfloat16 });
    const run = (): void => void noGrad(() => layer(x));
    run();
    assert.deepEqual(namesOf(run, copies), ['foreachCopy']);
  });

  it('do not keep a second buffer in memory', () => {
    const size = 1024;
    const mode = new FakeTensorMode();
    mode.run(() => {
      const mpPolicy = new MixedPrecisionPolicy({ paramDtype: bfloat16 });
      const model = new nn.Sequential(
        ...[0, 1, 2].map(() => new nn.Linear(size, size, { bias: false })),
      );
      for (const layer of model.children()) fullyShard(layer, { mpPolicy });
      fullyShard(model, { mpPolicy });
      const x = ones([1, size]);
      noGrad(() => model(x));
      mode.memory.resetPeak();
      noGrad(() => model(x));
    });
    const { peak } = mode.memory.stats();
    assert.ok(peak.temporaries < 2 * size * size * 1.1, `${peak.temporaries} bytes`);
  });
});
