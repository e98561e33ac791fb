/** The events of a profile, as the program gets them. */

import type { CollectiveEvent } from '../core/collective.js';
import { coveredTime } from '../core/covered-time.js';
import { modulePath } from '../core/module-path.js';
import type { Shape } from '../core/shape.js';
import { moduleOf, modulesOfPlans } from './graph-modules.js';
import type { HostEvent, ProfilerEventKind } from './host-events.js';
import type { RecordedCollective } from './host-recorder.js';
import type { ActivityRecord, CommandRecord, MemoryRecord } from './native-records.js';
import type { Recorded } from './session.js';

/** The time that a call took on the host, with what it started. Times are in microseconds. */
export interface ProfilerEvent {
  /** Unique in the process. */
  readonly id: number;
  /** What it is. */
  readonly kind: ProfilerEventKind;
  /** The op (`add_` in place), the node, the path of the module, or the name of the region. */
  readonly name: string;
  /** Since the start of the profile. */
  readonly start: number;
  /** Since the start of the profile. */
  readonly end: number;
  /** The time of the call with all that it calls. */
  readonly cpuTimeTotal: number;
  /** The time of the call without what it calls. */
  readonly selfCpuTimeTotal: number;
  /** The time of the kernels that it and all that it calls started. */
  readonly deviceTimeTotal: number;
  /** The time of the kernels that it started itself. */
  readonly selfDeviceTimeTotal: number;
  /** The event that called it; null for the outermost. */
  readonly parent: ProfilerEvent | null;
  /** The events that it called. */
  readonly children: readonly ProfilerEvent[];
  /** What it started itself on devices. */
  readonly kernels: readonly KernelEvent[];
  /** The shapes of the tensors that an op got; null without `recordShapes`. */
  readonly inputShapes: readonly Shape[] | null;
  /** The dtypes of the tensors that an op got; null without `recordShapes`. */
  readonly inputDtypes: readonly string[] | null;
  /**
   * The path of the innermost running module in the outermost one, or the class of the outermost
   * one; in backward, of the modules whose forward recorded the node. Null outside of modules and
   * without `withModules`.
   */
  readonly modulePath: string | null;
  /** The paths of all running modules, from the outermost to the innermost. */
  readonly modulePaths: readonly string[];
  /** Whether it is part of a backward pass. */
  readonly isBackward: boolean;
  /** The rank that ran it; null outside of ranks. */
  readonly rank: number | null;
  /** The call site in the program; null without `withStack`. */
  readonly stack: string | null;
  /** Bytes that it allocated, less those that it freed; needs `profileMemory`. */
  readonly memory: readonly MemoryEvent[];
}

/** Work of a stream: a kernel, a copy, a collective. Times are in microseconds. */
export interface KernelEvent {
  /** What it is. `wait`: the stream of a CPU waited for another one. */
  readonly kind: 'kernel' | 'memcpy' | 'memset' | 'collective' | 'wait';
  /** The name of the kernel; on GPUs the one of the driver where CUPTI was found. */
  readonly name: string;
  /** `cpu` or `cuda:0`. */
  readonly device: string;
  /** The number of the stream; null for work of a GPU whose command is not known. */
  readonly stream: number | null;
  /** Since the start of the profile. */
  readonly start: number;
  /** Since the start of the profile. */
  readonly end: number;
  /** How long it took. */
  readonly duration: number;
  /** The host event that called it. */
  readonly op: ProfilerEvent | null;
  /** The rank; null outside of ranks. */
  readonly rank: number | null;
  /** Bytes that were copied or filled; 0 if that is not known. */
  readonly bytes: number;
  /** The collective that it is part of; else null. */
  readonly collective: CollectiveEvent | null;
  /**
   * The path of the module that it is of, as {@link ProfilerEvent.modulePath}; of a compiled graph,
   * of the module whose forward was captured. The outermost module of a graph has the graph's name.
   */
  readonly modulePath: string | null;
  /**
   * How many kernels ran together, in one pass over their elements: each has a share of the time.
   */
  readonly together: number;
}

/** Memory that came or went. */
export interface MemoryEvent {
  /** `cpu`, `cuda:0`, or `pinned`. */
  readonly device: string;
  /** Microseconds since the start of the profile. */
  readonly time: number;
  /** Allocated bytes, or freed bytes if negative. */
  readonly bytes: number;
  /** Bytes that are allocated on the device after it. */
  readonly allocated: number;
  /** Bytes that the allocator has after it. */
  readonly reserved: number;
  /** The host event that did it. */
  readonly op: ProfilerEvent | null;
  /** The rank; null outside of ranks. */
  readonly rank: number | null;
}

/** When the thread of a GPU's stream launched a command. @internal */
export interface LaunchEvent {
  readonly name: string;
  readonly device: string;
  readonly stream: number;
  readonly start: number;
  readonly end: number;
  readonly rank: number | null;
}

type Writable<T> = { -readonly [K in keyof T]: T[K] };
type Event = Writable<Omit<ProfilerEvent, 'parent' | 'children' | 'kernels' | 'memory'>> & {
  parent: Event | null;
  children: Event[];
  kernels: KernelEvent[];
  memory: MemoryEvent[];
};

/** All events of a profile. @internal */
export interface Events {
  readonly host: readonly ProfilerEvent[];
  readonly kernels: readonly KernelEvent[];
  readonly launches: readonly LaunchEvent[];
  readonly memory: readonly MemoryEvent[];
}

/** The kinds of work that are time of a device. */
export const isWork = ({ kind }: KernelEvent): boolean => kind !== 'wait';

const deviceName = (code: number): string =>
  code < 0 ? 'pinned' : code === 0 ? 'cpu' : `cuda:${code - 1}`;

/** Puts together what was recorded. */
export function eventsOf(recorded: Recorded): Events {
  return new Assembly(recorded).events();
}

class Assembly {
  private readonly recorded: Recorded;
  private readonly byId = new Map<number, Event>();
  private readonly ranks = new Map<number, number | null>();
  private readonly paths = new Map<object, Map<object, string>>();
  /** The modules of commands of compiled graphs. */
  private readonly compiled: ReadonlyMap<number, string>;
  private readonly kernels: KernelEvent[] = [];
  private readonly launches: LaunchEvent[] = [];

  constructor(recorded: Recorded) {
    this.recorded = recorded;
    this.compiled = modulesOfPlans(recorded);
  }

  events(): Events {
    this.addHostEvents();
    this.addCommands();
    const memory = this.recorded.memory.map((each) => this.memoryEvent(each));
    const host = [...this.byId.values()].sort((a, b) => a.start - b.start || a.id - b.id);
    addTotals(host);
    this.kernels.sort((a, b) => a.start - b.start);
    return { host, kernels: this.kernels, launches: this.launches, memory };
  }

  /** Microseconds since the start, of a time of the host. */
  private ofHost(ms: number): number {
    return (ms - this.recorded.start) * 1e3;
  }

  /** Microseconds since the start, of a time of the addon. */
  private ofNative(us: number): number {
    return us - this.recorded.clock - this.recorded.start * 1e3;
  }

  private addHostEvents(): void {
    for (const event of this.recorded.events) this.byId.set(event.id, this.hostEvent(event));
    for (const { id, parent } of this.recorded.events) {
      const event = this.byId.get(id) as Event;
      event.parent = this.byId.get(parent?.id ?? 0) ?? null;
      event.parent?.children.push(event);
    }
  }

  private hostEvent(event: HostEvent): Event {
    const { id, kind, subject, modules, isBackward, rank, inputs, site } = event;
    const modulePaths = modules.map((_, i) => this.pathOf(modules.slice(0, i + 1)));
    const [start, end] = [this.ofHost(event.start), this.ofHost(event.end)];
    const path = modulePaths.at(-1) ?? null;
    return {
      id,
      kind,
      name: typeof subject === 'string' ? named(kind, subject) : (path as string),
      start,
      end,
      cpuTimeTotal: end - start,
      selfCpuTimeTotal: end - start,
      deviceTimeTotal: 0,
      selfDeviceTimeTotal: 0,
      parent: null,
      children: [],
      kernels: [],
      inputShapes: inputs?.shapes ?? null,
      inputDtypes: inputs?.dtypes ?? null,
      modulePath: path,
      modulePaths,
      isBackward,
      rank,
      stack: site,
      memory: [],
    };
  }

  private pathOf(modules: readonly object[]): string {
    const [outer, inner] = [modules[0] as object, modules.at(-1) as object];
    let known = this.paths.get(outer);
    if (known === undefined) this.paths.set(outer, (known = new Map()));
    let path = known.get(inner);
    if (path === undefined) known.set(inner, (path = modulePath(modules) as string));
    return path;
  }

  private addCommands(): void {
    const collectives = new Map(this.recorded.collectives.map((each) => [each.command, each]));
    const commands = new Map(this.recorded.commands.map((each) => [each.command, each]));
    for (const each of this.recorded.commands) {
      const op = this.byId.get(each.op);
      if (op !== undefined) this.ranks.set(each.rankRuntime, op.rank);
    }
    for (const command of this.recorded.commands)
      if (command.device === 0) this.addKernel(ofCpu(command), command, collectives);
      else this.launches.push(this.launchEvent(command));
    for (const activity of this.recorded.activities)
      this.addKernel(activity, commands.get(activity.command) ?? null, collectives);
  }

  private addKernel(
    work: Work,
    command: CommandRecord | null,
    collectives: ReadonlyMap<number, RecordedCollective>,
  ): void {
    const collective = collectives.get(work.command) ?? null;
    const [start, end] = [this.ofNative(work.start), this.ofNative(work.end)];
    const op = this.byId.get(command?.op ?? 0) ?? null;
    const event: KernelEvent = {
      kind: collective !== null && work.kind !== 'memset' ? 'collective' : work.kind,
      name: collective !== null && work.name === COLLECTIVE ? collective.kind : work.name,
      device: deviceName(work.device),
      stream: command?.stream ?? null,
      start,
      end,
      duration: end - start,
      op,
      rank: this.rankOf(command?.rankRuntime ?? 0, op),
      bytes: work.bytes,
      collective: collective === null ? null : described(collective),
      modulePath: moduleOf(op, this.compiled.get(work.command)),
      together: command?.together ?? 1,
    };
    this.kernels.push(event);
    op?.kernels.push(event);
  }

  private launchEvent({ name, device, stream, start, end, op, rankRuntime }: CommandRecord) {
    return {
      name,
      device: deviceName(device),
      stream,
      start: this.ofNative(start),
      end: this.ofNative(end),
      rank: this.rankOf(rankRuntime, this.byId.get(op) ?? null),
    };
  }

  private memoryEvent(change: MemoryRecord): MemoryEvent {
    const op = this.byId.get(change.op) ?? null;
    const event = {
      device: deviceName(change.device),
      time: this.ofNative(change.time),
      bytes: change.bytes,
      allocated: change.allocated,
      reserved: change.reserved,
      op,
      rank: this.rankOf(change.rankRuntime, op),
    };
    op?.memory.push(event);
    return event;
  }

  private rankOf(rankRuntime: number, op: Event | null): number | null {
    return op?.rank ?? this.ranks.get(rankRuntime) ?? this.recorded.world?.rank ?? null;
  }
}

/** Nodes have the names of their ops; PyTorch calls that of `mul` MulBackward0. */
const named = (kind: ProfilerEventKind, name: string): string =>
  kind !== 'node' || /Backward$|^AccumulateGrad$/.test(name)
    ? name
    : `${name.charAt(0).toUpperCase()}${name.slice(1)}Backward`;

/** What the addon calls all collectives. */
const COLLECTIVE = 'collective';

type Work = Omit<ActivityRecord, 'kind' | 'queue'> & { readonly kind: KernelEvent['kind'] };

function ofCpu({ command, name, isKernel, device, start, end }: CommandRecord): Work {
  const kind = isKernel ? 'kernel' : name.startsWith('Memcpy') ? 'memcpy' : 'wait';
  return { command, kind, name, device, bytes: 0, start, end };
}

function described({
  kind,
  name,
  group,
  ranks,
  meshDim,
  bytes,
  sentBytes,
  receivedBytes,
  where,
}: RecordedCollective): CollectiveEvent {
  return { kind, name, group, ranks, meshDim, bytes, sentBytes, receivedBytes, where };
}

/** Children end before their parents, except those that go on after an `await`. */
function addTotals(events: readonly Event[]): void {
  for (const event of events) {
    for (const kernel of event.kernels)
      if (isWork(kernel)) event.selfDeviceTimeTotal += kernel.duration;
    event.selfCpuTimeTotal = Math.max(0, event.cpuTimeTotal - coveredTime(event.children));
  }
  const total = (event: Event): number => {
    event.deviceTimeTotal = event.selfDeviceTimeTotal;
    for (const child of event.children) event.deviceTimeTotal += total(child);
    return event.deviceTimeTotal;
  };
  for (const event of events) if (event.parent === null) total(event);
}
