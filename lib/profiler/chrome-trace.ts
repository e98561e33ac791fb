/**
 * Traces in the JSON form of Chrome, which Perfetto and chrome://tracing open. A rank is a process.
 * Its threads are JavaScript, the streams of its devices, and the threads that launch for GPUs.
 */
import type { Events, KernelEvent, LaunchEvent, ProfilerEvent } from './events.js';
import { laneOf, nested } from './lanes.js';
import type { Recorded } from './session.js';

/** An entry of a trace: the form's own names. */
export interface TraceEvent {
  /** The phase: `X` a slice, `s` and `f` the ends of a flow, `C` a counter, `M` a name. */
  readonly ph: 'X' | 's' | 'f' | 'C' | 'M';
  /** What it shows. */
  readonly name: string;
  /** The category. */
  readonly cat?: string;
  /** The rank. */
  readonly pid: number;
  /** The thread or stream. */
  readonly tid: number;
  /** Microseconds of the host's clock, which is one for all processes of a machine. */
  readonly ts: number;
  /** Microseconds that a slice takes. */
  readonly dur?: number;
  /** The flow. */
  readonly id?: number;
  /** `e`: the flow ends in the slice around it. */
  readonly bp?: 'e';
  /** More about it. */
  readonly args?: Readonly<Record<string, unknown>>;
}

/** The whole trace. */
export interface ChromeTrace {
  /** Version of the form. */
  readonly schemaVersion: number;
  /** The unit that viewers show. */
  readonly displayTimeUnit: 'ms';
  /** The rank that was recorded; null outside of ranks. */
  readonly distributedInfo: { readonly rank: number; readonly worldSize: number } | null;
  /** Who timed GPUs; null without them. */
  readonly deviceTimer: string | null;
  /** Slices, flows, counters, and names of processes and threads. */
  readonly traceEvents: readonly TraceEvent[];
}

const CATEGORIES: Readonly<Record<ProfilerEvent['kind'] | KernelEvent['kind'], string>> = {
  op: 'cpu_op',
  node: 'autograd',
  backward: 'autograd',
  module: 'module',
  optimizer: 'optimizer',
  compiled: 'compiled',
  compile: 'compile',
  user: 'user_annotation',
  step: 'user_annotation',
  kernel: 'kernel',
  memcpy: 'gpu_memcpy',
  memset: 'gpu_memset',
  collective: 'collective',
  wait: 'wait',
};

/** Thread numbers: JavaScript and its lanes, streams, launching threads, unknown streams. */
const FIRST = { host: 1, stream: 1000, launch: 100_000, unknown: 200_000 };
/** Flows of ranks whose traces are put together have different numbers. */
const FLOWS_PER_RANK = 2 ** 32;

/** Makes the trace. */
export function chromeTrace(events: Events, recorded: Recorded): ChromeTrace {
  return {
    schemaVersion: 1,
    displayTimeUnit: 'ms',
    distributedInfo: recorded.world && {
      rank: recorded.world.rank,
      worldSize: recorded.world.worldSize,
    },
    deviceTimer: recorded.timer,
    traceEvents: new Trace(events, recorded).entries,
  };
}

class Trace {
  readonly entries: TraceEvent[] = [];
  private readonly threads = new Map<string, { pid: number; tid: number; name: string }>();
  /** The process of what runs outside of ranks. */
  private readonly main: number;
  private readonly origin: number;
  private flows = 0;
  private readonly hostLanes: ReadonlyMap<ProfilerEvent, number>;

  constructor(events: Events, recorded: Recorded) {
    this.origin = recorded.clock + recorded.start * 1e3;
    const ranks = [...events.host, ...events.kernels].map(({ rank }) => rank ?? -1);
    this.main = ranks.reduce((most, rank) => Math.max(most, rank), -1) + 1;
    this.hostLanes = laneOf(events.host, (each) => this.process(each.rank));
    for (const each of events.host) this.addHost(each);
    for (const each of events.kernels) this.addKernel(each);
    for (const each of events.launches) this.addLaunch(each);
    this.addPlans(events.kernels);
    for (const { device, time, allocated, reserved, rank } of events.memory)
      this.entries.push({
        ph: 'C',
        name: `memory ${device}`,
        pid: this.process(rank),
        tid: 0,
        ts: this.at(time),
        args: { allocated, reserved },
      });
    for (const { pid, tid, name } of this.threads.values())
      this.entries.push({ ph: 'M', name: 'thread_name', pid, tid, ts: 0, args: { name } });
    this.entries.push(...this.processNames(ranks));
  }

  private at(us: number): number {
    return this.origin + us;
  }

  private process(rank: number | null): number {
    return rank ?? this.main;
  }

  private processNames(ranks: readonly number[]): TraceEvent[] {
    return [...new Set(ranks.length === 0 ? [-1] : ranks)].map((rank) => ({
      ph: 'M',
      name: 'process_name',
      pid: rank < 0 ? this.main : rank,
      tid: 0,
      ts: 0,
      args: { name: rank < 0 ? 'shardwise' : `rank ${rank}` },
    }));
  }

  /** Names a thread at its first use. */
  private thread(pid: number, tid: number, name: string): number {
    const key = `${pid} ${tid}`;
    const before = this.threads.get(key);
    // The longest one names the group of the stream.
    if (before === undefined || before.name.length < name.length)
      this.threads.set(key, { pid, tid, name });
    return tid;
  }

  private slice(
    of: { readonly name: string; readonly start: number; readonly end: number },
    cat: string,
    place: { readonly pid: number; readonly tid: number },
    args: Readonly<Record<string, unknown>>,
  ): void {
    const { name, start, end } = of;
    const dur = Math.max(0, end - start);
    this.entries.push({ ph: 'X', name, cat, ...place, ts: this.at(start), dur, args });
  }

  private hostPlace(event: ProfilerEvent): { pid: number; tid: number } {
    const pid = this.process(event.rank);
    const lane = this.hostLanes.get(event) as number;
    const name = lane === 0 ? 'JavaScript' : `JavaScript, overlapping ${lane}`;
    return { pid, tid: this.thread(pid, FIRST.host + lane, name) };
  }

  private addHost(event: ProfilerEvent): void {
    this.slice(event, CATEGORIES[event.kind], this.hostPlace(event), {
      kind: event.kind,
      ...(event.inputShapes && {
        'Input Dims': event.inputShapes,
        'Input type': event.inputDtypes,
      }),
      ...(event.modulePath && { module: event.modulePath }),
      ...(event.isBackward && { backward: true }),
      ...(event.stack && { stack: event.stack }),
    });
  }

  private devicePlace(event: KernelEvent): { pid: number; tid: number } {
    const { device, stream, collective } = event;
    const pid = this.process(event.rank);
    if (stream === null)
      return { pid, tid: this.thread(pid, FIRST.unknown, `${device}, other streams`) };
    const name = `${device} stream ${stream}${collective ? `: ${collective.group}` : ''}`;
    return { pid, tid: this.thread(pid, FIRST.stream + stream, name) };
  }

  private addKernel(event: KernelEvent): void {
    const place = this.devicePlace(event);
    const { device, stream, op, bytes, collective, together } = event;
    this.slice(event, CATEGORIES[event.kind], place, {
      device,
      stream,
      ...(op && { op: op.name }),
      ...(op?.modulePath && { module: op.modulePath }),
      ...(bytes > 0 && { bytes }),
      ...(together > 1 && { together }),
      ...collective,
    });
    if (op !== null) this.flow(op, event, place);
  }

  private flow(op: ProfilerEvent, event: KernelEvent, to: { pid: number; tid: number }): void {
    const from = this.hostPlace(op);
    const id = from.pid * FLOWS_PER_RANK + ++this.flows;
    const about = { cat: 'ac2g', name: 'ac2g', id } as const;
    this.entries.push(
      { ph: 's', ...about, ...from, ts: this.at(op.start) },
      { ph: 'f', bp: 'e', ...about, ...to, ts: this.at(event.start) },
    );
  }

  private addLaunch(event: LaunchEvent): void {
    const { device, stream } = event;
    const pid = this.process(event.rank);
    const tid = this.thread(pid, FIRST.launch + stream, `launches of ${device} stream ${stream}`);
    this.slice(event, 'launch', { pid, tid }, { device, stream });
  }

  /** On each stream a slice around the kernels of a run of a compiled graph. */
  private addPlans(kernels: readonly KernelEvent[]): void {
    const ofStreams = grouped(kernels, ({ rank, device, stream }) => `${rank} ${device} ${stream}`);
    for (const ofStream of ofStreams.values()) {
      const plans = grouped(ofStream, ({ op }) => planOf(op));
      for (const [plan, own] of plans) if (plan !== null) this.addPlan(plan, own, ofStream);
    }
  }

  private addPlan(
    { name }: ProfilerEvent,
    own: readonly KernelEvent[],
    ofStream: readonly KernelEvent[],
  ): void {
    const start = own.reduce(
      (least, each) => Math.min(least, each.start),
      Number.POSITIVE_INFINITY,
    );
    const end = own.reduce((most, each) => Math.max(most, each.end), Number.NEGATIVE_INFINITY);
    if (!nested({ start, end }, ofStream)) return;
    const place = this.devicePlace(own[0] as KernelEvent);
    this.slice({ name, start, end }, CATEGORIES.compiled, place, { kernels: own.length });
  }
}

function grouped<T, K>(list: readonly T[], keyOf: (each: T) => K): Map<K, T[]> {
  const groups = new Map<K, T[]>();
  for (const each of list) {
    const key = keyOf(each);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [each]);
    else group.push(each);
  }
  return groups;
}

function planOf(op: ProfilerEvent | null): ProfilerEvent | null {
  for (let each = op; each !== null; each = each.parent) if (each.kind === 'compiled') return each;
  return null;
}
