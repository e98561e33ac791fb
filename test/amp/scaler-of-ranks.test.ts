/** An overflow on one rank: all ranks that share the step skip it, and nothing is read for that. */
import assert from 'node:assert/strict';
import { isDeepStrictEqual } from 'node:util';
import {
  ColwiseParallel,
  DeviceMesh,
  DistributedDataParallel,
  DTensor,
  FullyShardedDataParallel,
  fullyShard,
  initDeviceMesh,
  parallelizeModule,
} from '../../lib/distributed.js';
import {
  amp,
  DistributedError,
  manualSeed,
  nn,
  ones,
  optim,
  randn,
  type Tensor,
  tensor,
} from '../../lib/index.js';
import { withRanks } from '../../lib/testing/index.js';

/** The gradient of `gain` overflows; where parameters are sharded, it lies on one rank. */
class Model extends nn.Module<[x: Tensor, factor: number], Tensor> {
  readonly gain = new nn.Parameter(ones([1]));
  readonly net = new nn.Linear(4, 3);

  override forward(x: Tensor, factor: number): Tensor {
    return this.net(x).add(this.gain.sub(this.gain.detach()).mul(factor).nanToNum(0));
  }
}

interface Wrapped {
  readonly model: nn.Module<[x: Tensor, factor: number], Tensor>;
  readonly clip?: () => void;
}

function flat(options: object): (ranks: number) => Wrapped {
  return (ranks) => {
    const { shardingStrategy } = options as { shardingStrategy?: string };
    const isHybrid = shardingStrategy?.includes('HYBRID') === true;
    const mesh = isHybrid ? { deviceMesh: initDeviceMesh('cpu', [2, ranks / 2]) } : {};
    const inner = new Model();
    const net = new FullyShardedDataParallel(inner.net, { ...options, ...mesh });
    Object.assign(inner, { net });
    const model = new FullyShardedDataParallel(inner, { ...options, ...mesh });
    return { model: model as never, clip: () => void model.clipGradNorm_(0.5) };
  };
}

const wrappers: Record<string, (ranks: number) => Wrapped> = {
  DistributedDataParallel: () => ({ model: new DistributedDataParallel(new Model()) as never }),
  fullyShard: () => ({ model: fullyShard(new Model()) as never }),
  'fullyShard over replicas': (ranks) => ({
    model: fullyShard(new Model(), { mesh: initDeviceMesh('cpu', [2, ranks / 2]) }) as never,
  }),
  'tensor parallel': (ranks) => ({
    model: parallelizeModule(new Model(), initDeviceMesh('cpu', [ranks]), {
      net: new ColwiseParallel(),
    }) as never,
  }),
  'tensor parallel in flat parameters': (ranks) => {
    const mesh = initDeviceMesh('cpu', [2, ranks / 2], { meshDimNames: ['dp', 'tp'] });
    const inner = new Model();
    parallelizeModule(inner, mesh.get('tp'), { net: new ColwiseParallel() });
    const model = new FullyShardedDataParallel(inner, { deviceMesh: mesh.get('dp') });
    return { model: model as never, clip: () => void model.clipGradNorm_(0.5) };
  },
  FullyShardedDataParallel: flat({}),
  'FullyShardedDataParallel with useOrigParams': flat({ useOrigParams: true }),
  'FullyShardedDataParallel with SHARD_GRAD_OP': flat({ shardingStrategy: 'SHARD_GRAD_OP' }),
  'FullyShardedDataParallel with NO_SHARD': flat({ shardingStrategy: 'NO_SHARD' }),
  'FullyShardedDataParallel with HYBRID_SHARD': flat({ shardingStrategy: 'HYBRID_SHARD' }),
  'FullyShardedDataParallel with HYBRID_SHARD and useOrigParams': flat({
    shardingStrategy: 'HYBRID_SHARD',
    useOrigParams: true,
  }),
};

const local = (t: Tensor): Tensor => (t instanceof DTensor ? t.toLocal() : t);

/** What this rank holds of all parameters. */
async function valuesOf(model: nn.AnyModule): Promise<number[]> {
  const copies = [...model.parameters()].map((p) => local(p.detach()).clone());
  const arrays = await Promise.all(copies.map((t) => t.read()));
  return arrays.flatMap((values) => [...values].map(Number));
}

/** This rank's parameters after each step, with the scaler or without. */
async function train(
  wrap: (ranks: number) => Wrapped,
  factors: readonly number[],
  { ranks, scaler, clips }: { ranks: number; scaler: amp.GradScaler | null; clips: boolean },
): Promise<number[][]> {
  manualSeed(5);
  const { model, clip } = wrap(ranks);
  const optimizer = new optim.Adam(model.parameters(), { lr: 0.1 });
  const seen: number[][] = [];
  for (const factor of factors) {
    manualSeed(6);
    const loss = model(randn([2, 4]), factor)
      .square()
      .mean();
    (scaler === null ? loss : scaler.scale(loss)).backward();
    if (clips) {
      scaler?.unscale_(optimizer);
      if (clip === undefined) nn.utils.clipGradNorm_([...model.parameters()], 0.5);
      else clip();
    }
    if (scaler === null) optimizer.step();
    else {
      scaler.step(optimizer);
      scaler.update();
    }
    optimizer.zeroGrad();
    seen.push(await valuesOf(model));
  }
  return seen;
}

describe('GradScaler in ranks', () => {
  for (const [name, wrap] of Object.entries(wrappers))
    for (const clips of [false, true])
      it(`skips the step of all ranks: ${name}${clips ? ', with clipping' : ''}`, async () => {
        const ranks = 4;
        await withRanks(ranks, async () => {
          const scaler = new amp.GradScaler({ device: 'cpu', initScale: 8 });
          const inf = Number.POSITIVE_INFINITY;
          const [bad, good] = await train(wrap, [inf, 1], { ranks, scaler, clips });
          const [taken] = await train(wrap, [1], { ranks, scaler: null, clips });
          manualSeed(5);
          const begin = await valuesOf(wrap(ranks).model);
          assert.deepEqual(bad, begin);
          const near = good?.every((value, i) => Math.abs(value - (taken?.[i] as number)) < 1e-5);
          assert.ok(near, `${good} is not ${taken}`);
          assert.equal(await scaler.getScaleAsync(), 4);
        })();
      });

  it('refuses to read in ranks of one process, and names what to call', () =>
    withRanks(2, async (rank) => {
      const model = fullyShard(new nn.Linear(4, 3));
      const own = { paramGroups: [{ params: [...model.parameters()] }], step: () => void taken++ };
      let taken = 0;
      const scaler = new amp.GradScaler({ device: 'cpu', initScale: 8 });
      const backward = (): void => scaler.scale(model(ones([2, 4])).sum()).backward();
      const fails = (message: RegExp) => (error: Error) =>
        error instanceof DistributedError && message.test(error.message);
      backward();
      if (rank === 0) {
        const advice = /^GradScaler\.step: .*await scaler\.stepAsync\(optimizer\)/s;
        assert.throws(() => scaler.step(own), fails(advice));
      } else await scaler.stepAsync(own);
      scaler.update();
      if (rank === 0) {
        const advice = /^GradScaler\.getScale: .*await scaler\.getScaleAsync\(\)/s;
        assert.throws(() => scaler.getScale(), fails(advice));
        assert.throws(() => scaler.stateDict(), fails(/^GradScaler\.stateDict: .*getScaleAsync/s));
      }
      assert.equal(await scaler.getScaleAsync(), 8);
      assert.deepEqual([scaler.getScale(), taken], [8, rank]);
      model.zeroGrad();
      backward();
      await scaler.stepAsync(own);
      scaler.update();
      assert.equal(taken, rank + 1);
    })());

  it('is made in each rank', () =>
    withRanks(2, async (rank) => {
      shared.scaler ??= new amp.GradScaler({ device: 'cpu', initScale: 8 });
      if (rank === 0) shared.scaler.scale(tensor(1));
      else
        assert.throws(
          () => shared.scaler?.scale(tensor(1)),
          /GradScaler: the scaler belongs to rank 0/,
        );
    })());
});

const shared: { scaler: amp.GradScaler | null } = { scaler: null };

describe('a scaler of an optimizer whose parameters lie on different ranks', () => {
  /** The scale, and whether this rank took the step, where the gradient of one parameter overflows. */
  async function stepOf(
    params: readonly Tensor[],
    overflowing: Tensor | null,
  ): Promise<[scale: number, isTaken: boolean]> {
    const optimizer = new optim.SGD(params, { lr: 0.1 });
    const scaler = new amp.GradScaler({ device: 'cpu', initScale: 8 });
    const before = await valuesOfAll(params);
    const loss = params
      .map((p) =>
        local(p)
          .sum()
          .mul(p === overflowing ? Infinity : 1),
      )
      .reduce((a, b) => a.add(b));
    scaler.scale(loss).backward();
    scaler.step(optimizer);
    scaler.update();
    return [await scaler.getScaleAsync(), !isDeepStrictEqual(await valuesOfAll(params), before)];
  }

  const valuesOfAll = (params: readonly Tensor[]): Promise<unknown[]> =>
    Promise.all(params.map((p) => local(p.detach()).clone().read()));

  it(
    'skips the step on all: a trunk on four ranks, experts on two each',
    withRanks(4, async (rank) => {
      const mesh = initDeviceMesh('cpu', [2, 2], { meshDimNames: ['expert', 'shard'] });
      const trunk = fullyShard(new nn.Linear(4, 4), { mesh: initDeviceMesh('cpu', [4]) });
      const expert = fullyShard(new nn.Linear(4, 4), { mesh: mesh.get('shard') });
      const params = [...trunk.parameters(), ...expert.parameters()];
      const overflowing = rank === 3 ? expert.weight : null;
      assert.deepEqual(await stepOf(params, overflowing), [4, false]);
    }),
  );

  it(
    'skips the step on all: a plain parameter beside sharded ones',
    withRanks(2, async (rank) => {
      const net = fullyShard(new nn.Linear(4, 3));
      const plain = new nn.Parameter(ones([1]));
      const params = [...net.parameters(), plain];
      assert.deepEqual(await stepOf(params, rank === 0 ? plain : null), [4, false]);
    }),
  );

  it(
    'skips the step on all: an expert that some ranks lack',
    withRanks(3, async (rank) => {
      const trunk = fullyShard(new nn.Linear(4, 4));
      const mesh = new DeviceMesh('cpu', [1, 2]);
      const expert = rank === 0 ? null : fullyShard(new nn.Linear(4, 4), { mesh });
      const params = [...trunk.parameters(), ...(expert?.parameters() ?? [])];
      assert.deepEqual(await stepOf(params, rank === 2 ? (expert?.weight ?? null) : null), [
        4,
        false,
      ]);
    }),
  );
});
