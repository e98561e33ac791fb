/** Train steps of models that `fullyShard` shards: one graph, passes over it, its timeline. */
import assert from 'node:assert/strict';
import {
  type Graph,
  type Node,
  raiseCollectives,
  reorderForOverlap,
  sinkWaits,
} from '../../lib/compile/index.js';
import {
  CommDebugMode,
  checkpointWrapper,
  type FSDPModule,
  fullyShard,
  initDeviceMesh,
  markDataParallel,
  Replicate,
} from '../../lib/distributed.js';
import { ArgumentError, manualSeed, nn, optim, randn, type Tensor } from '../../lib/index.js';
import * as spmd from '../../lib/spmd/index.js';
import { withRanks } from '../../lib/testing/index.js';
import { warningsOf } from '../compile/warnings.js';

type Model = nn.Module<[x: Tensor], Tensor>;
const [GROUPS, DIM, STEPS] = [3, 8, 4];
/** Each group is gathered for forward, and each but the root once more for backward. */
const GATHERS = 2 * GROUPS - 1;

/** What stands for a layer in the model: itself, or a wrapper. */
type Wrap = (layer: nn.Linear) => Model;

/** The last layer is in the group of the root. */
function shardedModel(wrap: Wrap = (layer) => layer): Model & FSDPModule {
  manualSeed(1);
  const layers = Array.from({ length: GROUPS }, () => wrap(new nn.Linear(DIM, DIM)));
  const model = new nn.Sequential(...layers.flatMap((layer) => [layer, new nn.ReLU()]));
  for (const layer of layers.slice(0, -1)) fullyShard(layer);
  return fullyShard(model) as unknown as Model & FSDPModule;
}

const trainStep = (model: Model, optimizer: optim.AdamW, batch: Tensor): Tensor => {
  const loss = model(batch).square().mean();
  loss.backward();
  optimizer.step();
  optimizer.zeroGrad();
  return loss;
};

const adamOf = (model: Model): optim.AdamW =>
  new optim.AdamW(model.parameters(), { lr: 0.05, capturable: true });

/** Each rank has its own. */
const batchOf = (step: number, rank: number): Tensor => {
  manualSeed(10 * step + rank);
  return randn([5, DIM]);
};

const read = async (t: Tensor): Promise<number[]> =>
  Array.from(await (t.sharding?.local ?? t).detach().read(), Number);

/** Losses, the collectives of each step in order, and the shards at the end, with their versions. */
async function trained(step: typeof trainStep, rank: number, wrap?: Wrap): Promise<unknown> {
  const model = shardedModel(wrap);
  const adam = adamOf(model);
  const seen: unknown[] = [];
  for (let i = 0; i < STEPS; i++) {
    const mode = new CommDebugMode();
    const batch = batchOf(i, rank);
    const loss = mode.run(() => step(model, adam, batch));
    // Ranks wait for each other when they have captured a step.
    const events = mode.events.filter(({ kind }) => kind !== 'barrier');
    seen.push([await read(loss), events.map((e) => `${e.kind} ${e.bytes} ${e.group}`)]);
  }
  const shards = [...model.parameters()].map(async (p) => [p._version, await read(p)]);
  return [seen, await Promise.all(shards)];
}

type Edit = (gm: spmd.IterGraphModule) => unknown;

/** Compiles a step whose graph `edit` changes. */
function compiledBy<S extends (...args: never[]) => unknown = typeof trainStep>(
  edit: Edit,
  { enableInductor = false, step = trainStep as unknown as S } = {},
): S {
  return spmd.compile({
    gmTransformation: (module) => {
      const gm = new spmd.IterGraphModule(module, { enableInductor });
      edit(gm);
      gm.recompile();
      return gm;
    },
  })(step as never) as unknown as S;
}

const rates = 'h200' as const;
const overlap: Edit = ({ graph }) => reorderForOverlap(graph, { rates, allowanceBytes: 1 << 30 });

const PASSES: Readonly<Record<string, Edit>> = {
  'no pass': () => {},
  raiseCollectives: ({ graph }) => raiseCollectives(graph),
  sinkWaits: ({ graph }) => sinkWaits(graph),
  reorderForOverlap: overlap,
  removeCopyFromOptimizer: spmd.removeCopyFromOptimizer,
  'commFusionWithConcat and scheduleCommWait': (gm) => {
    spmd.commFusionWithConcat(gm, 100);
    spmd.scheduleCommWait(gm);
  },
  'passes one after the other': (gm) => {
    raiseCollectives(gm.graph);
    sinkWaits(gm.graph);
    overlap(gm);
  },
};

/** How many ops the graph has between the start and the end of each gather. */
function computedBeside(graph: Graph): number[] {
  const calls = graph.callNodes;
  return calls.flatMap((start, i) => {
    if (start.op?.name !== 'fsdp::startUnshard') return [];
    const isEnd = ({ inputs: [value] }: Node): boolean =>
      value !== undefined && 'node' in value && value.node === start;
    const between = calls.slice(i + 1, calls.findIndex(isEnd));
    return between.filter(({ op }) => !op?.name.startsWith('fsdp::')).length;
  });
}

const opsOf = (graph: Graph): string[] => graph.callNodes.flatMap(({ op }) => op?.name ?? []);

describe('a compiled step of a sharded model', () => {
  for (const [name, edit] of Object.entries(PASSES))
    for (const enableInductor of [false, true])
      it(
        `takes the steps of the uncompiled one, with ${name}, enableInductor ${enableInductor}`,
        withRanks(2, async (rank) => {
          const graphs: Graph[] = [];
          const step = compiledBy(
            (gm) => {
              edit(gm);
              graphs.push(gm.graph);
            },
            { enableInductor },
          );
          const found = await trained(step, rank);
          assert.deepEqual(found, await trained(trainStep, rank));
          assert.equal(graphs.length, 1);
          const ops = opsOf(graphs[0] as Graph);
          const count = (op: string): number => ops.filter((each) => each === `fsdp::${op}`).length;
          assert.deepEqual(['startUnshard', 'finishUnshard', 'postBackward'].map(count), [
            GATHERS,
            GATHERS,
            GROUPS,
          ]);
        }),
      );

  for (const [name, edit] of Object.entries(PASSES))
    it(
      `takes the steps of the uncompiled one in checkpoints, with ${name}`,
      withRanks(2, async (rank) => {
        // With a result that backward needs, so that the layer runs again.
        const wrap: Wrap = (layer) => checkpointWrapper(new nn.Sequential(layer, new nn.Tanh()));
        const found = await trained(compiledBy(edit), rank, wrap);
        assert.deepEqual(found, await trained(trainStep, rank, wrap));
      }),
    );

  it(
    'keeps the batch and the loss of each rank its own',
    withRanks(2, async (rank) => {
      const model = shardedModel();
      const step = compiledBy(() => {});
      const loss = step(model, adamOf(model), batchOf(0, rank));
      assert.equal(loss.sharding, null);
      const own = shardedModel()(batchOf(0, rank)).square().mean();
      assert.deepEqual(await read(loss), await read(own));
    }),
  );

  it(
    'has gathers of forward and of backward that a pass starts earlier',
    withRanks(2, (rank) => {
      const found: number[][] = [];
      const step = compiledBy(({ graph }) => {
        found.push(computedBeside(graph));
        raiseCollectives(graph);
        found.push(computedBeside(graph));
      });
      const model = shardedModel();
      // Only a pass, and no prefetch, starts the gather of a group beside another one's backward.
      for (const each of model.modules())
        (each as Partial<FSDPModule>).setModulesToBackwardPrefetch?.([each]);
      step(model, adamOf(model), batchOf(0, rank));
      const [before, after] = found as [number[], number[]];
      assert.deepEqual(before, Array(GATHERS).fill(0));
      const isEarly = after.map((ops) => ops > 0);
      assert.ok(isEarly.slice(0, GROUPS).includes(true), String(after));
      assert.deepEqual(isEarly.slice(GROUPS), Array(GROUPS - 1).fill(true), String(after));
    }),
  );

  it(
    'is captured anew where it reduces in other passes, and says why',
    withRanks(2, async (rank) => {
      const accumulate = (model: Model, batch: Tensor): void => model(batch).sum().backward();
      const [plain, model] = [shardedModel(), shardedModel()];
      let captures = 0;
      const step = compiledBy(() => captures++, { step: accumulate });
      const warnings = await warningsOf(() => {
        for (const [i, sync] of [true, false, false, true].entries())
          for (const [each, run] of [
            [plain, accumulate],
            [model, step],
          ] as const) {
            each.zeroGrad();
            each.setRequiresGradientSync(sync);
            run(each, batchOf(i, rank));
          }
      });
      const gradients = (of: Model): Promise<number[][]> =>
        Promise.all([...of.parameters()].map((p) => read(p.grad as Tensor)));
      assert.deepEqual(await gradients(model), await gradients(plain));
      // One that reduces alone, one that does not, and one that takes along what has accumulated.
      assert.equal(captures, 3);
      assert.match(warnings.join('\n'), /reducesGradients was true and is false/);
    }),
  );
});

describe('the timeline of a step of a sharded model', () => {
  it(
    'has gathers and reductions as communication, with their bytes',
    withRanks(2, (rank) => {
      const graphs: Graph[] = [];
      const model = shardedModel();
      compiledBy(({ graph }) => graphs.push(graph))(model, adamOf(model), batchOf(0, rank));
      const { entries, communication } = spmd.timeline(graphs[0] as Graph, { rates });
      const found = entries.filter(({ lane }) => lane === 'communication');
      const count = (op: string): number =>
        found.filter(({ name }) => name.startsWith(`fsdp::${op}`)).length;
      assert.deepEqual([count('startUnshard'), count('postBackward')], [GATHERS, GROUPS]);
      // Each rank has one of two equal shards: it sends its own, or the gradients of the other.
      const shardBytes = (4 * (DIM * DIM + DIM)) / 2;
      assert.deepEqual(
        found.map(({ bytes }) => bytes),
        found.map(() => shardBytes),
      );
      assert.ok(communication > 0);
    }),
  );
});

describe('spmd.compile with a model that is data parallel by itself', () => {
  const batch = () => [Replicate()];

  it(
    'refuses to divide the batch once more',
    withRanks(2, (rank) => {
      const mesh = initDeviceMesh('cpu', [2]);
      const model = shardedModel();
      const step = spmd.compile({ parallelMode: { mesh, batch } })(trainStep);
      assert.throws(
        () => step(model, adamOf(model), batchOf(0, rank)),
        (error: Error) =>
          error instanceof ArgumentError && /parallelMode without batch/.test(error.message),
      );
    }),
  );

  it(
    'leaves plain tensors of a model that the program marked as they are',
    withRanks(2, (rank) => {
      const collectivesOf = (isMarked: boolean): number => {
        manualSeed(1);
        const model = new nn.Sequential(new nn.Linear(DIM, DIM)) as unknown as Model;
        if (isMarked) markDataParallel(model);
        let found = 0;
        const step = compiledBy(({ graph }) => {
          found = opsOf(graph).filter((op) => /allReduce|reduceScatter/.test(op)).length;
        });
        step(model, adamOf(model), batchOf(0, rank));
        return found;
      };
      assert.equal(collectivesOf(true), 0);
      assert.ok(collectivesOf(false) > 0);
    }),
  );

  it(
    'takes a mesh alone',
    withRanks(2, async (rank) => {
      const model = shardedModel();
      const step = spmd.compile({ parallelMode: { mesh: initDeviceMesh('cpu', [2]) } })(trainStep);
      const other = shardedModel();
      assert.deepEqual(
        await read(step(model, adamOf(model), batchOf(0, rank))),
        await read(trainStep(other, adamOf(other), batchOf(0, rank))),
      );
    }),
  );
});
