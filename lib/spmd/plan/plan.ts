/** What a train step would send, hold and take on any mesh, for several parallel layouts. */

import { type Task, tasksOf } from '../../compile/estimate/tasks.js';
import { FakeTensorMode } from '../../compile/fake-tensor-mode.js';
import { ArgumentError, DistributedError, ShardwiseError } from '../../core/errors.js';
import { checkFunction, optionsOf, unexpected } from '../../core/options.js';
import { WORLD } from '../../distributed/engines/engine.js';
import { destroyProcessGroup, initDeviceMesh, isInitialized } from '../../distributed/index.js';
import { enterFakeWorld } from '../../distributed/launch/fake-world.js';
import { commFusionWithConcat } from '../comm-fusion.js';
import { scheduleCommWait } from '../comm-wait.js';
import { IterGraphModule } from '../iter-graph-module.js';
import { StepModule } from '../step-module.js';
import { simulate } from '../timeline/simulate.js';
import type { Timeline } from '../timeline/timeline.js';
import type { DataRanks } from './data-ranks.js';
import { fullySharded } from './fully-sharded.js';
import { captureLayout, type LayoutName, type PlannedStep } from './layouts.js';
import {
  gradientsIn,
  gradientsOf,
  type Held,
  heldBy,
  type PlanMemory,
  peakOf,
  type StepParts,
} from './memory.js';
import { type PlanMesh, type PlanOptions, type Settings, settingsOf } from './options.js';
import { printPlan } from './table.js';

/** What a step is made for. */
export interface PlanContext {
  /** The number of ranks, or groups of ranks, that have different parts of the batch. */
  readonly dataRanks: number;
  /** The number of ranks that share a parameter in `tp` and `fsdp x tp`; 1 for other layouts. */
  readonly tensorRanks: number;
}

/** Calls and bytes of one rank along a mesh dim. */
export interface PlanTraffic {
  /** The number of collectives. */
  readonly calls: number;
  /** The bytes that a rank sends in them, in rings. */
  readonly sentBytes: number;
}

/** A layout on a mesh. Times are in seconds, sizes in bytes, both of one rank. */
export interface LayoutPlan {
  /** The layout. */
  readonly layout: LayoutName;
  /** The number of ranks, or groups of ranks, that have different parts of the batch. */
  readonly dataRanks: number;
  /** Why the step cannot run in this layout; null if it can. All numbers are 0 if it cannot. */
  readonly problem: string | null;
  /** Communication by mesh dim; of groups that are no dim, by the name of the group. */
  readonly communication: Readonly<Record<string, PlanTraffic>>;
  /** What a rank holds when it holds most. */
  readonly memory: PlanMemory;
  /** Whether that is within `memoryBytes`. */
  readonly fits: boolean;
  /** When each node runs; null if the step cannot run. */
  readonly timeline: Timeline | null;
  /** The time of a step. */
  readonly seconds: number;
}

/** What {@link plan} returns. */
export class StepPlan {
  /** The mesh. */
  readonly mesh: PlanMesh;
  /** The bytes that a rank has; null for any number. */
  readonly memoryBytes: number | null;
  /** The layouts, in the order in which they were asked for. */
  readonly layouts: readonly LayoutPlan[];
  /** The fastest of the layouts that fit; null if none does. */
  readonly fastest: LayoutPlan | null;

  /** @internal */
  constructor(mesh: PlanMesh, memoryBytes: number | null, layouts: readonly LayoutPlan[]) {
    this.mesh = mesh;
    this.memoryBytes = memoryBytes;
    this.layouts = layouts;
    const fitting = layouts.filter(({ fits }) => fits);
    this.fastest = fitting.reduce<LayoutPlan | null>(
      (best, each) => (best === null || each.seconds < best.seconds ? each : best),
      null,
    );
  }

  /** A table with a row a layout, and the communication of each. */
  toString(): string {
    return printPlan(this);
  }

  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return this.toString();
  }
}

/**
 * Estimates what a train step sends, holds and takes on a mesh of any size, for the layouts `dp`,
 * `fsdp`, `tp` and `fsdp x tp`, without ranks, GPUs or memory. `makeStep` makes the step, once
 * without and once with tensor parallelism; it runs in a fake world of the mesh's size, on tensors
 * without values.
 *
 * What is captured and what is modelled:
 * - `dp` and `tp` are captured as `spmd.compile` does it, after `commFusionWithConcat` and
 *   `scheduleCommWait`, so calls and bytes are exact. A collective among all ranks counts along
 *   `world`.
 * - `fsdp` is modelled on the graph of `dp`, and `fsdp x tp` on that of `tp`: one all-gather of a
 *   group of parameters before its first use in forward and another in backward, each one group
 *   ahead; one reduce-scatter of its gradients; an optimizer step on shards. With `paramDtype` the
 *   gathered parameters take the place of the copies that autocast makes of them.
 * - Memory is freed after its last use; what the allocator adds is left out.
 * - Times are those of {@link timeline}, and have its limits.
 *
 * @param makeStep - makes a new model, optimizer and batch, and returns the step and its arguments.
 * The batch is this rank's part, so divide its rows by `dataRanks`
 * @param mesh - the shape and the names of the dims
 * @throws ArgumentError for a mesh, options or a step of other types; DtypeError for what is no
 * dtype; DistributedError in a world of ranks; CompileError for a step that cannot be captured
 * @example
 * const trainStep = (model: nn.Module, optimizer: optim.AdamW, batch: Tensor) => {
 *   model(batch).mean().backward();
 *   optimizer.step();
 *   optimizer.zeroGrad();
 * };
 * const found = plan(
 *   ({ dataRanks }) => {
 *     const model = new nn.Linear(64, 64);
 *     const optimizer = new optim.AdamW(model.parameters(), { capturable: true });
 *     return { trainStep, args: [model, optimizer, randn([1024 / dataRanks, 64])] };
 *   },
 *   { shape: [4, 2], meshDimNames: ['dp', 'tp'] },
 *   { device: 'cuda', memoryBytes: 141e9 },
 * );
 * console.log(`${found}`, found.fastest?.layout);
 */
export function plan(
  makeStep: (context: PlanContext) => PlannedStep,
  mesh: PlanMesh,
  options: PlanOptions = {},
): StepPlan {
  checkFunction('plan', 'makeStep', makeStep);
  const settings = settingsOf(mesh, options);
  const { shape } = settings.mesh;
  const world = shape.reduce((a, b) => a * b, 1);
  const found = inFakeWorld(world, () => {
    const captures = new Map<boolean, StepParts | ShardwiseError>();
    return settings.layouts.map((layout) => {
      const isTensorParallel = layout === 'tp' || layout === 'fsdp x tp';
      const captured =
        captures.get(isTensorParallel) ?? capturedStep(makeStep, isTensorParallel, settings);
      captures.set(isTensorParallel, captured);
      const dataRanks = isTensorParallel ? world / (shape.at(-1) as number) : world;
      return layoutPlan(layout, captured, dataRanks, settings);
    });
  });
  return new StepPlan(settings.mesh, settings.memoryBytes, found);
}

function inFakeWorld<T>(worldSize: number, fn: () => T): T {
  if (isInitialized())
    throw new DistributedError(
      'plan: this process is a rank of a world. Plan before initProcessGroup(), or after ' +
        'destroyProcessGroup().',
      { op: 'plan' },
    );
  enterFakeWorld({ rank: 0, worldSize });
  try {
    return new FakeTensorMode().run(fn);
  } finally {
    destroyProcessGroup();
  }
}

const nothing: PlanMemory = {
  total: 0,
  parameters: 0,
  gradients: 0,
  optimizerState: 0,
  activations: 0,
};

/** Captures the step; returns the error of one that cannot be tensor parallel. */
function capturedStep(
  makeStep: (context: PlanContext) => PlannedStep,
  isTensorParallel: boolean,
  { mesh: { shape, meshDimNames }, device, shardParameter }: Settings,
): StepParts | ShardwiseError {
  const tensorRanks = isTensorParallel ? (shape.at(-1) as number) : 1;
  const dataRanks = shape.reduce((a, b) => a * b, 1) / tensorRanks;
  const mesh = initDeviceMesh(device, [...shape], { meshDimNames: [...meshDimNames] });
  const step = checkedStep(makeStep({ dataRanks, tensorRanks }));
  try {
    return captureLayout(step, mesh, isTensorParallel, shardParameter);
  } catch (error) {
    // The step itself is wrong if it cannot be captured with replicated parameters.
    if (isTensorParallel && error instanceof ShardwiseError && !(error instanceof ArgumentError))
      return error;
    throw error;
  }
}

function layoutPlan(
  layout: LayoutName,
  captured: StepParts | ShardwiseError,
  dataRanks: number,
  settings: Settings,
): LayoutPlan {
  if (captured instanceof ShardwiseError) {
    const numbers = { communication: {}, memory: nothing, timeline: null, seconds: 0 };
    return { layout, dataRanks, problem: captured.message, fits: false, ...numbers };
  }
  const { tasks, held } = workOf(layout, captured, dataRanks, settings);
  const timeline = simulate(layout, settings.rates, tasks);
  const memory = peakOf(held);
  return {
    layout,
    dataRanks,
    problem: null,
    communication: trafficIn(tasks),
    memory,
    fits: settings.memoryBytes === null || memory.total <= settings.memoryBytes,
    timeline,
    seconds: timeline.total,
  };
}

/** @throws ArgumentError for what is no step */
function checkedStep(given: PlannedStep): PlannedStep {
  const isStep =
    typeof given === 'object' &&
    given !== null &&
    typeof given.trainStep === 'function' &&
    Array.isArray(given.args);
  if (!isStep)
    throw unexpected('plan', 'makeStep', 'a function that returns { trainStep, args }', given);
  return optionsOf('plan: the result of makeStep', given, 'trainStep args');
}

function workOf(
  layout: LayoutName,
  parts: StepParts,
  dataRanks: number,
  settings: Settings,
): { readonly tasks: readonly Task[]; readonly held: readonly Held[] } {
  const { rates, bucketSizeMb, groupOf } = settings;
  const isReplicated = layout === 'dp' || layout === 'tp';
  if (isReplicated && bucketSizeMb !== null) {
    const gm = new IterGraphModule(new StepModule(parts));
    commFusionWithConcat(gm, bucketSizeMb);
    scheduleCommWait(gm);
    return {
      tasks: tasksOf(gm.graph, rates),
      held: heldBy(gm.graph, parts.inputs, gradientsIn(gm.graph, parts)),
    };
  }
  const tasks = tasksOf(parts.graph, rates, { waitsLate: true });
  const held = heldBy(parts.graph, parts.inputs, gradientsOf(parts));
  if (isReplicated) return { tasks, held };
  const data = dataRanksOf(layout, dataRanks, settings);
  return fullySharded(parts, held, tasks, { data, rates, groupOf });
}

/** The ranks among which a layout shards parameters. */
function dataRanksOf(
  layout: LayoutName,
  ranks: number,
  { mesh: { shape, meshDimNames }, paramDtype, reduceDtype }: Settings,
): DataRanks {
  const isOfTwo = layout === 'fsdp x tp';
  return {
    ranks,
    along: isOfTwo ? meshDimNames.slice(0, -1).join('_') : WORLD,
    tensorRanks: isOfTwo ? (shape.at(-1) as number) : 1,
    tensorAlong: meshDimNames.at(-1) as string,
    paramDtype,
    reduceDtype,
  };
}

function trafficIn(tasks: readonly Task[]): Record<string, PlanTraffic> {
  const found: Record<string, PlanTraffic> = {};
  for (const { lane, along, bytes } of tasks) {
    if (lane !== 'communication' || along === null) continue;
    const { calls, sentBytes } = found[along] ?? { calls: 0, sentBytes: 0 };
    found[along] = { calls: calls + 1, sentBytes: sentBytes + bytes };
  }
  return found;
}
