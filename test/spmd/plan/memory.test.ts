/** The planned memory of a rank beside what its allocator gives out. */
import assert from 'node:assert/strict';
import {
  destroyProcessGroup,
  fullyShard,
  initDeviceMesh,
  initProcessGroup,
  Replicate,
} from '../../../lib/distributed.js';
import { memory, nn, randn, scope, type Tensor } from '../../../lib/index.js';
import {
  compile,
  GraphModuleTransformation,
  type LayoutName,
  type PlanContext,
  type PlannedStep,
  plan,
} from '../../../lib/spmd/index.js';
import { adamOf, type Model, modelOf, shardInTurns, trainStep } from '../support/fake-step.js';

const LAYERS = 4;
const DIM = 128;
/** Real peaks are at most this many times the planned ones: docs/spmd.md. */
const BOUND = 1.3;

/** Uncompiled, each layer keeps its results until the garbage is collected, unless it has none. */
function modelInPlace(): Model {
  const layers = Array.from({ length: LAYERS }, () => [new nn.Linear(DIM, DIM), new nn.ReLU(true)]);
  return new nn.Sequential(...(layers.flat() as never[])) as unknown as Model;
}

const makeModel = (layout: LayoutName): Model =>
  layout === 'fsdp' ? modelInPlace() : modelOf(LAYERS, DIM);

/** What a rank runs: its model, distributed, and a step that leaves no garbage. */
function realStep(layout: LayoutName, ranks: number, batch: Tensor) {
  const model = makeModel(layout);
  if (layout === 'tp') shardInTurns(model, ranks);
  if (layout === 'fsdp') {
    for (const layer of model.children())
      if (layer instanceof nn.Linear) fullyShard(layer as never);
    fullyShard(model as never);
  }
  const optimizer = adamOf(model);
  const mesh = initDeviceMesh('cpu', [ranks], { meshDimNames: ['ranks'] });
  const parallelMode = { mesh, ...(layout === 'tp' ? { batch: () => [Replicate()] } : {}) };
  const gmTransformation = GraphModuleTransformation({
    enableGraphOptimization: true,
    enableInductor: true,
    bucketSizeMb: 25,
  });
  const step =
    layout === 'fsdp' ? trainStep : compile({ gmTransformation, parallelMode })(trainStep);
  const take = async (): Promise<void> => {
    scope(() => {
      step(model, optimizer, batch);
    });
    await heldOf([...model.parameters()][0] as Tensor)
      .detach()
      .read();
  };
  return { model, optimizer, take };
}

const heldOf = (t: Tensor): Tensor => t.sharding?.local ?? t;
const bytesOf = (tensors: Iterable<Tensor>): number =>
  [...tensors].reduce((sum, t) => sum + heldOf(t).numel() * t.dtype.itemsize, 0);

describe('the planned memory of a rank', () => {
  for (const layout of ['dp', 'fsdp', 'tp'] as const)
    for (const [ranks, rows] of [
      [2, 256],
      [4, 2048],
    ] as const)
      it(`is that of tensors by role, and near the peak: ${layout}, ${ranks} ranks, ${rows} rows`, async () => {
        const makeStep = ({ dataRanks }: PlanContext): PlannedStep => {
          const model = makeModel(layout);
          return { trainStep, args: [model, adamOf(model), randn([rows / dataRanks, DIM])] };
        };
        const line = { shape: [ranks], meshDimNames: ['ranks'] };
        const planned = plan(makeStep, line, { layouts: [layout] }).layouts[0]!.memory;
        // The other ranks of a fake world are not there; this one allocates as if they were.
        await initProcessGroup('fake', { rank: 0, worldSize: ranks });
        try {
          memory.collect();
          const before = memory.stats().allocatedBytes;
          const batch = randn([layout === 'tp' ? rows : rows / ranks, DIM]);
          const { model, optimizer, take } = realStep(layout, ranks, batch);
          await take();
          await take();
          memory.collect();
          memory.resetPeak();
          await take();
          const peak = memory.stats().peakAllocatedBytes - before;
          assert.ok(peak <= planned.total * BOUND, `${peak} and planned ${planned.total}`);
          assert.ok(planned.total <= peak * 1.01, `${peak} and planned ${planned.total}`);
          const states = [...optimizer.state.values()] as Record<string, Tensor>[];
          const stateBytes = bytesOf(states.flatMap((state) => Object.values(state)));
          assert.equal(planned.optimizerState, stateBytes);
          const parameters = bytesOf(model.parameters());
          if (layout === 'fsdp') assert.ok(planned.parameters >= parameters);
          else assert.equal(planned.parameters, parameters);
        } finally {
          destroyProcessGroup();
        }
      });
});
