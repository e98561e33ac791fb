/** What a train step would send, hold and take on any mesh, for several parallel layouts. */

import { FakeTensorMode } from '../../compile/fake-tensor-mode.js';
import { type DType, type DTypeLike, dtypeOf } from '../../core/dtype.js';
import { ArgumentError, DistributedError, ShardwiseError } from '../../core/errors.js';
import {
  checkFunction,
  checkNumber,
  checkOneOf,
  listOf,
  optionsOf,
  unexpected,
} from '../../core/options.js';
import { WORLD } from '../../distributed/engines/engine.js';
import { destroyProcessGroup, initDeviceMesh, isInitialized } from '../../distributed/index.js';
import { enterFakeWorld } from '../../distributed/launch/fake-world.js';
import { commFusionWithConcat } from '../comm-fusion.js';
import { scheduleCommWait } from '../comm-wait.js';
import { IterGraphModule } from '../iter-graph-module.js';
import { StepModule } from '../step-module.js';
import { type Rates, type RatesName, ratesOf } from '../timeline/rates.js';
import { simulate } from '../timeline/simulate.js';
import { type Task, tasksOf } from '../timeline/tasks.js';
import type { Timeline } from '../timeline/timeline.js';
import type { DataRanks } from './data-ranks.js';
import { fullySharded } from './fully-sharded.js';
import {
  captureLayout,
  LAYOUTS,
  type LayoutName,
  type PlannedStep,
  type ShardParameter,
} from './layouts.js';
import {
  gradientsIn,
  gradientsOf,
  type Held,
  heldBy,
  type PlanMemory,
  peakOf,
  type StepParts,
} from './memory.js';
import { printPlan } from './table.js';

/** The ranks that a plan is for; none of them exists. */
export interface PlanMesh {
  /** The ranks along each dim. */
  readonly shape: readonly number[];
  /** A name for each dim. */
  readonly meshDimNames: readonly string[];
}

/** What a step is made for. */
export interface PlanContext {
  /** The number of ranks, or groups of ranks, that have different parts of the batch. */
  readonly dataRanks: number;
  /** The number of ranks that share a parameter in `tp` and `fsdp x tp`; 1 for other layouts. */
  readonly tensorRanks: number;
}

/** Options of {@link plan}. */
export interface PlanOptions {
  /** The layouts to compare; all that the mesh has dims for by default. */
  readonly layouts?: readonly LayoutName[];
  /** The device of the step's tensors. */
  readonly device?: 'cpu' | 'cuda';
  /** A table of rates, or the name of a known one. By default that of the device. */
  readonly rates?: RatesName | Rates;
  /** The bytes that a rank has for tensors; null for any number. */
  readonly memoryBytes?: number | null;
  /** MiB of a bucket of fused gradients in `dp` and `tp`; null for a collective a gradient. */
  readonly bucketSizeMb?: number | null;
  /**
   * Where `tp` shards parameters: by default linear layers by columns and by rows in turns, where
   * the ranks share them evenly, and nothing else.
   */
  readonly shardParameter?: ShardParameter | null;
  /**
   * The parameters that `fsdp` gathers together have one name: by default that of the layer with
   * the first number, such as `layers.0` for `layers.0.up.weight`, and `''` for all others.
   */
  readonly groupOf?: (name: string) => string;
  /**
   * The dtype in which `fsdp` gathers parameters, as `paramDtype` of a MixedPrecisionPolicy; by
   * default their own. The step computes in it by `autocast`.
   */
  readonly paramDtype?: DTypeLike | null;
  /** The dtype in which `fsdp` reduces gradients; by default `paramDtype`. */
  readonly reduceDtype?: DTypeLike | null;
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

/** The checked settings of a plan. */
interface Settings {
  readonly mesh: PlanMesh;
  readonly device: 'cpu' | 'cuda';
  readonly rates: Rates;
  readonly memoryBytes: number | null;
  readonly bucketSizeMb: number | null;
  readonly shardParameter: ShardParameter | null;
  readonly groupOf: (name: string) => string;
  readonly paramDtype: DType | null;
  readonly reduceDtype: DType | null;
}

const byFirstNumber = (name: string): string => /^(?:.*?\.)?\d+(?=\.)/.exec(name)?.[0] ?? '';

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
 * const found = plan(
 *   ({ dataRanks }) => {
 *     const model = new Mlp().to('cuda');
 *     const optimizer = new optim.AdamW(model.parameters(), { capturable: true });
 *     const x = randn([(1 << 20) / dataRanks, 8192], { device: 'cuda' });
 *     return { trainStep, args: [model, optimizer, x] };
 *   },
 *   { shape: [512, 8], meshDimNames: ['dp', 'tp'] },
 *   { device: 'cuda', memoryBytes: 141e9 },
 * );
 * console.log(`${found}`, found.fastest?.layout);
 */
export function plan(
  makeStep: (context: PlanContext) => PlannedStep,
  mesh: PlanMesh,
  options: PlanOptions = {},
): StepPlan {
  const name = 'plan';
  checkFunction(name, 'makeStep', makeStep);
  const { shape, meshDimNames } = checkedMesh(mesh);
  const {
    layouts = LAYOUTS.filter((each) => each !== 'fsdp x tp' || shape.length > 1),
    device = 'cpu',
    rates = device === 'cuda' ? 'h200' : 'cpu',
    memoryBytes = null,
    bucketSizeMb = 25,
    shardParameter = null,
    groupOf = byFirstNumber,
    paramDtype = null,
    reduceDtype = null,
  } = optionsOf(
    name,
    options,
    'layouts device rates memoryBytes bucketSizeMb shardParameter groupOf paramDtype reduceDtype',
  );
  const names = listOf(name, 'layouts', `a list of ${LAYOUTS.join(', ')}`, layouts);
  for (const each of names) checkOneOf(name, 'layouts', each, LAYOUTS);
  checkOneOf(name, 'device', device, ['cpu', 'cuda']);
  if (memoryBytes !== null) checkNumber(name, 'memoryBytes', memoryBytes, { above: 0 });
  if (bucketSizeMb !== null) checkNumber(name, 'bucketSizeMb', bucketSizeMb, { above: 0 });
  if (shardParameter !== null) checkFunction(name, 'shardParameter', shardParameter);
  checkFunction(name, 'groupOf', groupOf);
  if (names.includes('fsdp x tp') && shape.length < 2)
    throw new ArgumentError(
      `plan: the layout "fsdp x tp" needs a mesh of two dims or more, got [${shape.join(', ')}]`,
      { op: name, argument: 'layouts' },
    );
  const table = ratesOf(name, rates);
  const settings = {
    mesh: { shape, meshDimNames },
    device,
    rates: table,
    memoryBytes,
    bucketSizeMb,
    shardParameter,
    groupOf,
    paramDtype: floatingDtype('paramDtype', paramDtype),
    reduceDtype: floatingDtype('reduceDtype', reduceDtype),
  };
  const world = shape.reduce((a, b) => a * b, 1);
  const found = inFakeWorld(world, () => {
    const captures = new Map<boolean, StepParts | ShardwiseError>();
    return names.map((layout) => {
      const isTensorParallel = layout === 'tp' || layout === 'fsdp x tp';
      const captured =
        captures.get(isTensorParallel) ?? capturedStep(makeStep, isTensorParallel, settings);
      captures.set(isTensorParallel, captured);
      const dataRanks = isTensorParallel ? world / (shape.at(-1) as number) : world;
      return layoutPlan(layout, captured, dataRanks, settings);
    });
  });
  return new StepPlan({ shape, meshDimNames }, memoryBytes, found);
}

/** @throws ArgumentError for what is no floating dtype */
function floatingDtype(argument: string, given: DTypeLike | null): DType | null {
  const dtype = given === null ? null : dtypeOf(given, 'plan', argument);
  if (dtype === null || dtype.isFloatingPoint) return dtype;
  throw unexpected('plan', argument, 'a floating point dtype or null', given);
}

/** @throws ArgumentError for what is no mesh */
function checkedMesh(given: PlanMesh): PlanMesh {
  const isObject = typeof given === 'object' && given !== null;
  const { shape, meshDimNames } = (isObject ? given : {}) as Partial<PlanMesh>;
  const expected =
    'an object with shape and meshDimNames, such as { shape: [8], meshDimNames: ["dp"] }';
  if (!Array.isArray(shape) || !Array.isArray(meshDimNames) || shape.length === 0)
    throw unexpected('plan', 'mesh', expected, given);
  for (const size of shape) checkNumber('plan', 'mesh.shape', size, { from: 1, whole: true });
  const areNames =
    meshDimNames.length === shape.length &&
    new Set(meshDimNames).size === shape.length &&
    meshDimNames.every((each) => typeof each === 'string');
  if (!areNames)
    throw unexpected('plan', 'mesh.meshDimNames', `${shape.length} different names`, meshDimNames);
  return { shape: [...shape], meshDimNames: [...meshDimNames] };
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
  return given;
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
