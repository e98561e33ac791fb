/**
 * A data parallel step as fully sharded data parallelism would take it: a model of what fullyShard
 * does to each group of parameters, on the graph of the step without it.
 */
import type { Node } from '../../compile/graph/node.js';
import { Dependencies } from '../dependencies.js';
import { communicationSeconds, computeSeconds, type Rates } from '../timeline/rates.js';
import { type Task, waitTask } from '../timeline/tasks.js';
import { type Group, groupsOf, type Sharded } from './fsdp-groups.js';
import type { Held, StepParts } from './memory.js';

/** Tasks and memory of the fully sharded step. */
export interface FullySharded {
  readonly tasks: readonly Task[];
  readonly held: readonly Held[];
}

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
  {
    ranks,
    rates,
    groupOf,
  }: {
    readonly ranks: number;
    readonly rates: Rates;
    readonly groupOf: (name: string) => string;
  },
): FullySharded {
  const dependencies = new Dependencies(parts.graph);
  const groups = groupsOf(parts, dependencies, ranks, groupOf);
  const along = tasks.find((task) => task.ranks === ranks && task.along !== null)?.along ?? 'data';
  const collective = (name: string, bytes: number, waitsFor: readonly Task[]): Task => {
    const sent = (bytes * (ranks - 1)) / ranks;
    const seconds = communicationSeconds(rates, ranks, sent);
    return {
      ...waitTask(name, waitsFor),
      lane: 'communication',
      seconds,
      bytes: sent,
      along,
      ranks,
    };
  };
  return {
    tasks: new Assembly(parts, dependencies, groups, collective, (task) =>
      shardedStep(task, ranks, rates),
    ).tasksFrom(tasks),
    held: [...shardedMemory(held, groups, dependencies, ranks), ...groups.flatMap(gatheredMemory)],
  };
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
    for (const { reduction } of parameters) {
      const [input] = reduction?.inputs ?? [];
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

/** The parameters of other ranks while they are gathered. */
function gatheredMemory({ name, parameters, bytes, forward, backward }: Group): Held[] {
  const [first] = parameters as readonly [Sharded];
  const value = { node: first.input.node, output: 0 };
  const spans =
    backward === null
      ? [forward]
      : name === ''
        ? [[forward[0], backward[1]] as const]
        : [forward, backward];
  return spans.map(([from, to]) => ({ role: 'parameters', bytes, from, to, value }));
}

/** Puts gathers and reductions among the tasks of a graph. */
class Assembly {
  private readonly dependencies: Dependencies;
  private readonly collective: (name: string, bytes: number, waitsFor: readonly Task[]) => Task;
  private readonly onShards: (task: Task) => Task;
  private readonly lasting: ReadonlySet<object>;
  /** What is gathered, in the order of its first use. */
  private readonly gathers: readonly { readonly at: number; readonly group: Group }[];
  private readonly groups: readonly Group[];
  private readonly tasks: Task[] = [];
  /** The gathers of the groups that are under way or there. */
  private readonly gathered: Task[] = [];
  private readonly replaced = new Map<Task, Task>();

  constructor(
    { inputs }: StepParts,
    dependencies: Dependencies,
    groups: readonly Group[],
    collective: (name: string, bytes: number, waitsFor: readonly Task[]) => Task,
    onShards: (task: Task) => Task,
  ) {
    this.dependencies = dependencies;
    this.collective = collective;
    this.onShards = onShards;
    this.groups = groups;
    this.lasting = new Set(
      inputs
        .filter(({ role }) => role === 'parameter' || role === 'state')
        .map(({ node }) => dependencies.memoryOf({ node, output: 0 })),
    );
    this.gathers = groups
      .flatMap((group) => [
        { at: group.forward[0], group },
        ...(group.name === '' || group.backward === null ? [] : [{ at: group.backward[0], group }]),
      ])
      .sort((a, b) => a.at - b.at);
  }

  tasksFrom(tasks: readonly Task[]): Task[] {
    const reductions = new Map<Node, Group>();
    for (const group of this.groups)
      for (const { reduction } of group.parameters)
        if (reduction !== null) reductions.set(reduction, group);
    const waiting = new Map<Group, Task[]>();
    for (const task of tasks) {
      const node = task.node as Node;
      const needed = this.gatherBefore(this.dependencies.positionOf(node));
      const group = reductions.get(node);
      if (group === undefined) this.add(task, needed);
      else {
        const ready = [...(waiting.get(group) ?? []), task];
        waiting.set(group, ready);
        const own = new Set(group.parameters.map(({ reduction }) => reduction));
        if (ready.length < [...own].filter((each) => each !== null).length) continue;
        const bytes = group.parameters.reduce((sum, p) => sum + (p.hasGradient ? p.bytes : 0), 0);
        const scattered = this.collective(`reduceScatter ${group.name}`, bytes, needed);
        this.tasks.push(scattered);
        for (const each of ready) this.replaced.set(each, scattered);
      }
    }
    return this.tasks;
  }

  /**
   * Starts the gathers up to one after those that the node needs; returns the one that it needs.
   */
  private gatherBefore(at: number): Task[] {
    const needed = this.gathers.findLastIndex((each) => each.at <= at);
    if (needed < 0) return [];
    for (let i = this.gathered.length; i <= needed + 1 && i < this.gathers.length; i++) {
      const { group } = this.gathers[i] as { group: Group };
      const gather = this.collective(`allGather ${group.name}`, group.bytes, []);
      this.gathered.push(gather);
      this.tasks.push(gather);
    }
    return [this.gathered[needed] as Task];
  }

  private add(task: Task, needed: readonly Task[]): void {
    const others = task.waitsFor.map((each) => this.replaced.get(each) ?? each);
    const waitsFor = [...new Set([...others, ...needed])];
    const written = this.dependencies.writtenBy(task.node as Node);
    const isStep = [...written].some((memory) => this.lasting.has(memory));
    const own = { ...task, waitsFor };
    const added = isStep ? this.onShards(own) : own;
    this.replaced.set(task, added);
    this.tasks.push(added);
  }
}
