/**
 * A data parallel step as fully sharded data parallelism would take it: a model of what fullyShard
 * does to each group of parameters, on the graph of the step without it.
 */

import { communicationSeconds, computeSeconds, type Rates } from '../../compile/estimate/rates.js';
import { type Task, waitTask } from '../../compile/estimate/tasks.js';
import { communicationWork } from '../../compile/estimate/work.js';
import { Dependencies } from '../../compile/graph/dependencies.js';
import type { Node } from '../../compile/graph/node.js';
import { type DataRanks, scopeOf } from './data-ranks.js';
import { castsOf, type Group, groupsOf, type Sharded } from './fsdp-groups.js';
import type { Held, StepParts } from './memory.js';

/** Tasks and memory of the fully sharded step. */
interface FullySharded {
  readonly tasks: readonly Task[];
  readonly held: readonly Held[];
}

/** A collective of a group of parameters. */
type MakeCollective = (name: string, bytes: number, waitsFor: readonly Task[]) => Task;

/**
 * Groups of parameters are gathered before the first node that uses them in forward, one group
 * ahead, and freed after the last one; again in backward, where the gradients of the group are
 * reduced and scattered as soon as the last one is there. The group with the name '' keeps its
 * parameters from forward to backward. The optimizer's step works on shards.
 *
 * @param tasks - those of the graph, with late waits
 */
export function fullySharded(
  parts: StepParts,
  held: readonly Held[],
  tasks: readonly Task[],
  { data, rates, groupOf }: ShardedSettings,
): FullySharded {
  const dependencies = new Dependencies(parts.graph);
  const groups = groupsOf(parts, dependencies, data, groupOf);
  const casts = new Set([...castsOf(parts.graph, data).values()].flat());
  const gathers = gathersOf(groups);
  const assembly = new Assembly(parts, dependencies, groups, gathers, {
    casts,
    collective: (name, bytes, waitsFor) =>
      communication(name, (bytes * (data.ranks - 1)) / data.ranks, waitsFor, data, rates),
    onShards: (task) => shardedStep(task, data.ranks, rates),
    // The gradient of a whole parameter is reduced among the ranks of the last mesh dim, too.
    ofTensorRanks: (task) =>
      scopeOf(task.node as Node, data) === 'data' ? null : amongTensorRanks(task, data, rates),
  });
  const own = held.filter(({ value }) => !casts.has(value.node));
  return {
    tasks: assembly.tasksFrom(tasks),
    held: [
      ...shardedMemory(own, groups, dependencies, data.ranks),
      ...gatheredMemory(gathers),
      ...groups.flatMap(reducedMemory),
    ],
  };
}

/** How {@link fullySharded} shards. */
interface ShardedSettings {
  readonly data: DataRanks;
  readonly rates: Rates;
  readonly groupOf: (name: string) => string;
}

function communication(
  name: string,
  bytes: number,
  waitsFor: readonly Task[],
  { ranks, along }: Pick<DataRanks, 'ranks' | 'along'>,
  rates: Rates,
): Task {
  const seconds = communicationSeconds(rates, ranks, bytes);
  return { ...waitTask(name, waitsFor), lane: 'communication', seconds, bytes, along, ranks };
}

function amongTensorRanks(
  { name, node, waitsFor }: Task,
  { tensorRanks: ranks, tensorAlong: along }: DataRanks,
  rates: Rates,
): Task {
  const { sentBytes } = communicationWork(node as Node, { ranks });
  return { ...communication(name, sentBytes, waitsFor, { ranks, along }, rates), node };
}

/** A kernel on shards instead of whole tensors. */
function shardedStep(task: Task, ranks: number, rates: Rates): Task {
  const [flops, bytes] = [task.flops / ranks, task.bytes / ranks];
  return {
    ...task,
    flops,
    bytes,
    seconds: computeSeconds(rates, { flops, bytes, dtype: 'float32' }),
  };
}

/**
 * What a rank holds of memory of the step without shards. Gradients are whole until those of their
 * group are reduced. Scalars, such as counts of steps, are whole on all ranks.
 */
function shardedMemory(
  held: readonly Held[],
  groups: readonly Group[],
  dependencies: Dependencies,
  ranks: number,
): Held[] {
  const ends = new Map<object, number>();
  for (const { parameters, backward } of groups)
    for (const { reductions } of parameters) {
      const [input] = reductions.at(-1)?.inputs ?? [];
      if (input === undefined || 'number' in input || backward === null) continue;
      ends.set(dependencies.memoryOf(input), backward[1]);
    }
  return held.map((each) => {
    const { node, output } = each.value;
    const end = ends.get(dependencies.memoryOf(each.value));
    if (end !== undefined) return { ...each, to: Math.max(each.to, end) };
    const isWhole = each.role === 'activations' || node.metas[output]?.shape.length === 0;
    return isWhole ? each : { ...each, bytes: Math.ceil(each.bytes / ranks) };
  });
}

/** One gather of a group of parameters: in forward, or in backward. */
interface Gather {
  readonly group: Group;
  /** Positions of the nodes before which it starts, of the first one that needs it and the last. */
  readonly start: number;
  readonly at: number;
  readonly to: number;
}

/** What is gathered, in the order of its first use: each one starts when the one before is used. */
function gathersOf(groups: readonly Group[]): Gather[] {
  const spans = groups.flatMap((group) => {
    const { name, forward, backward } = group;
    const kept = backward !== null && name === '' ? ([forward[0], backward[1]] as const) : forward;
    const again = backward !== null && name !== '' ? [backward] : [];
    return [kept, ...again].map(([at, to]) => ({ group, at, to }));
  });
  const ordered = spans.sort((a, b) => a.at - b.at);
  return ordered.map((span, i) => ({ ...span, start: ordered[i - 1]?.at ?? 0 }));
}

/** The parameters of other ranks while they are gathered: as rows of ranks first, then whole. */
function gatheredMemory(gathers: readonly Gather[]): Held[] {
  return gathers.flatMap(({ group, start, at, to }): Held[] => {
    const [first] = group.parameters as readonly [Sharded];
    const held = { role: 'parameters', bytes: group.bytes } as const;
    const value = { node: first.input.node, output: 0 };
    return [
      { ...held, value, from: start, to: at },
      { ...held, value, from: at, to },
    ];
  });
}

/** The gradients of a group in one row of shards, which is reduced. */
function reducedMemory({ parameters, gradientBytes: bytes, backward }: Group): Held[] {
  if (backward === null || bytes === 0) return [];
  const [first] = parameters as readonly [Sharded];
  const [, at] = backward;
  const value = { node: first.input.node, output: 0 };
  return [{ role: 'gradients', bytes, from: at, to: at, value }];
}

/** How {@link Assembly} makes tasks. */
interface TaskMakers {
  /** Casts of parameters, which the gathered ones are. */
  readonly casts: ReadonlySet<Node>;
  readonly collective: MakeCollective;
  readonly onShards: (task: Task) => Task;
  readonly ofTensorRanks: (task: Task) => Task | null;
}

/** Puts gathers and reductions among the tasks of a graph. */
class Assembly {
  private readonly dependencies: Dependencies;
  private readonly make: TaskMakers;
  private readonly lasting: ReadonlySet<object>;
  private readonly gathers: readonly Gather[];
  /** The group of each collective that reduces a gradient. */
  private readonly reductions = new Map<Node, Group>();
  private readonly tasks: Task[] = [];
  /** The gathers of the groups that are under way or there. */
  private readonly gathered: Task[] = [];
  private readonly waiting = new Map<Group, Task[]>();
  private readonly replaced = new Map<Task, Task>();

  constructor(
    { inputs }: StepParts,
    dependencies: Dependencies,
    groups: readonly Group[],
    gathers: readonly Gather[],
    make: TaskMakers,
  ) {
    this.dependencies = dependencies;
    this.make = make;
    this.gathers = gathers;
    this.lasting = new Set(
      inputs
        .filter(({ role }) => role === 'parameter' || role === 'state')
        .map(({ node }) => dependencies.memoryOf({ node, output: 0 })),
    );
    for (const group of groups)
      for (const { reductions } of group.parameters)
        for (const node of reductions) this.reductions.set(node, group);
  }

  tasksFrom(tasks: readonly Task[]): Task[] {
    for (const task of tasks) {
      const node = task.node as Node;
      const needed = this.gatherBefore(this.dependencies.positionOf(node));
      const group = this.reductions.get(node);
      if (group === undefined) this.add(task, needed);
      else this.reduce(task, group, needed);
    }
    return this.tasks;
  }

  /** The gradients of a group are reduced and scattered when the last one is there. */
  private reduce(task: Task, group: Group, needed: readonly Task[]): void {
    const among = this.make.ofTensorRanks(task);
    if (among !== null) this.tasks.push(among);
    const ready = [...(this.waiting.get(group) ?? []), task];
    this.waiting.set(group, ready);
    const own = new Set(group.parameters.flatMap(({ reductions }) => reductions));
    if (ready.length < own.size) return;
    const name = `reduceScatter ${group.name}`;
    const scattered = this.make.collective(name, group.gradientBytes, needed);
    this.tasks.push(scattered);
    for (const each of ready) this.replaced.set(each, scattered);
  }

  /** Starts the gathers up to one after those that the node needs; returns what it waits for. */
  private gatherBefore(at: number): Task[] {
    const needed = this.gathers.findLastIndex((each) => each.at <= at);
    if (needed < 0) return [];
    for (let i = this.gathered.length; i <= needed + 1 && i < this.gathers.length; i++) {
      const { group } = this.gathers[i] as Gather;
      const gather = this.make.collective(`allGather ${group.name}`, group.bytes, []);
      this.gathered.push(gather);
      this.tasks.push(gather);
    }
    return [this.gathered[needed] as Task];
  }

  private add(task: Task, needed: readonly Task[]): void {
    const node = task.node as Node;
    const others = task.waitsFor.map((each) => this.replaced.get(each) ?? each);
    const own = { ...task, waitsFor: [...new Set([...others, ...needed])] };
    const written = this.dependencies.writtenBy(node);
    const isOnShards =
      this.make.casts.has(node) || [...written].some((memory) => this.lasting.has(memory));
    const added = isOnShards ? this.make.onShards(own) : own;
    this.replaced.set(task, added);
    this.tasks.push(added);
  }
}
