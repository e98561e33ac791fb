/** Sums of events: by op, by module, by kernel. */
import { ArgumentError } from '../core/errors.js';
import { checkFlag, optionsOf } from '../core/options.js';
import { formatShape } from '../core/shape.js';
import { type Events, isWork, type KernelEvent, type ProfilerEvent } from './events.js';
import { outermostOf } from './graph-modules.js';
import { printTable, type TableOptions } from './table.js';

/** Options of {@link Profile.keyAverages}. At most one of the last two. */
export interface KeyAveragesOptions {
  /** A row for each combination of input shapes; needs `recordShapes`. */
  readonly groupByInputShape?: boolean;
  /**
   * A row for each module path; needs `withModules`. Backward counts for the modules it is of.
   * Modules of a compiled graph have rows by the kernels that come from them.
   */
  readonly groupByModule?: boolean;
  /** A row for each kernel, copy and kind of collective. */
  readonly groupByKernel?: boolean;
}

/** The sum of all events with one key. Times are in microseconds, memory in bytes. */
export interface EventAverage {
  /** The name of the op or region, the path of the module, or the name of the kernel. */
  readonly key: string;
  /** The input shapes, with `groupByInputShape`; else ''. */
  readonly inputShapes: string;
  /** The number of calls; of a module those of its forward, or of the graph that it is in. */
  readonly count: number;
  /** Time of the host with all that was called. */
  readonly cpuTimeTotal: number;
  /** Time of the host without what was called. */
  readonly selfCpuTimeTotal: number;
  /** Time of all kernels that were started. */
  readonly deviceTimeTotal: number;
  /** Time of the kernels that were started without a further op. */
  readonly selfDeviceTimeTotal: number;
  /** Bytes allocated on the CPU less those freed, with all that was called. */
  readonly cpuMemoryUsage: number;
  /** Bytes allocated on the CPU less those freed, without what was called. */
  readonly selfCpuMemoryUsage: number;
  /** Bytes allocated on GPUs less those freed, with all that was called. */
  readonly deviceMemoryUsage: number;
  /** Bytes allocated on GPUs less those freed, without what was called. */
  readonly selfDeviceMemoryUsage: number;
}

/** Sums while they are made. @internal */
export type Sums = { -readonly [K in keyof EventAverage]: EventAverage[K] };

/** The rows of {@link Profile.keyAverages}, in the order of their first events. */
export class KeyAverages implements Iterable<EventAverage> {
  /** The rows. */
  readonly rows: readonly EventAverage[];
  /** The time in which the host ran what was recorded, in microseconds. */
  readonly selfCpuTimeTotal: number;
  /** The time of all kernels, in microseconds. */
  readonly selfDeviceTimeTotal: number;
  private readonly parts: TableParts;

  /** @internal */
  constructor(rows: readonly EventAverage[], events: Events, parts: TableParts) {
    this.rows = rows;
    this.parts = parts;
    this.selfCpuTimeTotal = events.host.reduce((sum, each) => sum + each.selfCpuTimeTotal, 0);
    this.selfDeviceTimeTotal = events.kernels
      .filter(isWork)
      .reduce((sum, { duration }) => sum + duration, 0);
  }

  /** The row with this key; the first one if there are several. */
  get(key: string): EventAverage | undefined {
    return this.rows.find((row) => row.key === key);
  }

  [Symbol.iterator](): Iterator<EventAverage> {
    return this.rows[Symbol.iterator]();
  }

  /**
   * A table for people.
   *
   * @throws ArgumentError for an unknown column to sort by
   * @see PyTorch `EventList.table`
   * @example
   * const prof = profiler.profile({}, () => model(x));
   * console.log(prof.keyAverages().table({ sortBy: 'selfDeviceTimeTotal', rowLimit: 10 }));
   */
  table(options: TableOptions = {}): string {
    return printTable(this, this.parts, options);
  }

  /** The table with its defaults. */
  toString(): string {
    return this.table();
  }

  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return this.toString();
  }
}

/** What the rows have numbers for. @internal */
export interface TableParts {
  readonly of: 'op' | 'module' | 'kernel';
  readonly host: boolean;
  readonly memory: boolean;
  readonly shapes: boolean;
}

/** What was recorded, so that a group has what it needs. @internal */
export interface RecordedParts {
  readonly onHost: boolean;
  readonly recordShapes: boolean;
  readonly withModules: boolean;
  readonly profileMemory: boolean;
}

const OP = 'keyAverages';

/** Groups events. @throws ArgumentError for groups that exclude each other or were not recorded */
export function keyAverages(
  events: Events,
  options: KeyAveragesOptions,
  recorded: RecordedParts,
): KeyAverages {
  const {
    groupByInputShape: shapes = false,
    groupByModule = false,
    groupByKernel = false,
  } = optionsOf(OP, options, 'groupByInputShape groupByModule groupByKernel');
  const flags = { groupByInputShape: shapes, groupByModule, groupByKernel };
  for (const [name, value] of Object.entries(flags)) checkFlag(OP, name, value);
  if (Number(shapes) + Number(groupByModule) + Number(groupByKernel) > 1)
    throw new ArgumentError(`${OP}: expected one of ${Object.keys(flags).join(', ')}, got several`);
  need(shapes, recorded.recordShapes, 'groupByInputShape', 'recordShapes: true');
  need(groupByModule, recorded.withModules, 'groupByModule', 'withModules: true');
  const of = groupByModule ? 'module' : groupByKernel ? 'kernel' : 'op';
  const rows = { op: byOp, module: byModule, kernel: byKernel }[of](events, shapes);
  const host = of !== 'kernel' && recorded.onHost;
  return new KeyAverages(rows, events, {
    of,
    host,
    memory: host && recorded.profileMemory,
    shapes,
  });
}

function need(wants: boolean, has: boolean, option: string, recorded: string): void {
  if (wants && !has)
    throw new ArgumentError(
      `${OP}: ${option} needs what was not recorded: pass ${recorded} to profiler.profile`,
      { op: OP, argument: option },
    );
}

class Groups {
  private readonly rows = new Map<string, Sums>();

  of(key: string, inputShapes = ''): Sums {
    const name = `${key}\n${inputShapes}`;
    let row = this.rows.get(name);
    if (row === undefined) this.rows.set(name, (row = { ...NOTHING, key, inputShapes }));
    return row;
  }

  get all(): readonly Sums[] {
    return [...this.rows.values()];
  }
}

const NOTHING: EventAverage = {
  key: '',
  inputShapes: '',
  count: 0,
  cpuTimeTotal: 0,
  selfCpuTimeTotal: 0,
  deviceTimeTotal: 0,
  selfDeviceTimeTotal: 0,
  cpuMemoryUsage: 0,
  selfCpuMemoryUsage: 0,
  deviceMemoryUsage: 0,
  selfDeviceMemoryUsage: 0,
};

interface Memory {
  readonly cpu: number;
  readonly device: number;
}

function selfMemory({ memory }: ProfilerEvent): Memory {
  let [cpu, device] = [0, 0];
  for (const { device: on, bytes } of memory)
    if (on.startsWith('cuda')) device += bytes;
    else cpu += bytes;
  return { cpu, device };
}

/** The memory of each event with that of all it calls. */
function memoryTotals(events: readonly ProfilerEvent[]): Map<ProfilerEvent, Memory> {
  const totals = new Map<ProfilerEvent, Memory>();
  const total = (event: ProfilerEvent): Memory => {
    let { cpu, device } = selfMemory(event);
    for (const child of event.children) {
      const of = total(child);
      cpu += of.cpu;
      device += of.device;
    }
    const sum = { cpu, device };
    totals.set(event, sum);
    return sum;
  };
  for (const event of events) if (event.parent === null) total(event);
  return totals;
}

function addSelf(row: Sums, event: ProfilerEvent): void {
  const own = selfMemory(event);
  row.selfCpuTimeTotal += event.selfCpuTimeTotal;
  row.selfDeviceTimeTotal += event.selfDeviceTimeTotal;
  row.selfCpuMemoryUsage += own.cpu;
  row.selfDeviceMemoryUsage += own.device;
}

function byOp({ host }: Events, shapes: boolean): readonly Sums[] {
  const groups = new Groups();
  const memory = memoryTotals(host);
  for (const event of host) {
    if (event.kind === 'module') continue;
    const row = groups.of(event.name, shapes ? shapesOf(event) : '');
    const all = memory.get(event) as Memory;
    row.count++;
    row.cpuTimeTotal += event.cpuTimeTotal;
    row.deviceTimeTotal += event.deviceTimeTotal;
    row.cpuMemoryUsage += all.cpu;
    row.deviceMemoryUsage += all.device;
    addSelf(row, event);
  }
  return groups.all;
}

const shapesOf = ({ inputShapes }: ProfilerEvent): string =>
  inputShapes === null ? '' : `[${inputShapes.map(formatShape).join(', ')}]`;

/**
 * What runs inside of a module counts for it and for the modules around it. A compiled graph runs
 * no forward: its outermost module has the time of the host, and each module that of its kernels.
 */
function byModule({ host }: Events): readonly Sums[] {
  const groups = new Groups();
  for (const event of host) {
    const own = selfMemory(event);
    const outermost = outermostOf(event);
    const around = new Set(event.modulePaths);
    if (outermost !== null) around.add(outermost);
    for (const path of around) {
      const row = groups.of(path);
      row.cpuTimeTotal += event.selfCpuTimeTotal;
      row.deviceTimeTotal += event.selfDeviceTimeTotal;
      row.cpuMemoryUsage += own.cpu;
      row.deviceMemoryUsage += own.device;
    }
    const innermost = event.modulePath ?? outermost;
    if (innermost === null) continue;
    addSelf(groups.of(innermost), event);
    const inside = event.kind === 'compiled' ? addGraph(groups, event, around, innermost) : [];
    if (event.kind === 'module' || (event.modulePath === null && isRun(event)))
      groups.of(innermost).count++;
    for (const path of isRun(event) ? inside : []) groups.of(path).count++;
  }
  return groups.all;
}

const isRun = ({ kind, name }: ProfilerEvent): boolean =>
  kind === 'compiled' && !name.endsWith(' backward');

/** Adds the kernels of a graph to its modules; returns the paths of those that no event is of. */
function addGraph(
  groups: Groups,
  { kernels }: ProfilerEvent,
  around: ReadonlySet<string>,
  innermost: string,
): readonly string[] {
  const inside = new Set<string>();
  for (const kernel of kernels) {
    const { modulePath, duration } = kernel;
    if (modulePath === null || modulePath === innermost || !isWork(kernel)) continue;
    groups.of(innermost).selfDeviceTimeTotal -= duration;
    groups.of(modulePath).selfDeviceTimeTotal += duration;
    for (const path of pathsAround(modulePath)) {
      if (around.has(path)) continue;
      groups.of(path).deviceTimeTotal += duration;
      inside.add(path);
    }
  }
  return [...inside];
}

/** `layers`, `layers.0` and `layers.0.fc` for the last of them. */
const pathsAround = (path: string): string[] =>
  path.split('.').map((_, i, parts) => parts.slice(0, i + 1).join('.'));

function byKernel({ kernels }: Events): readonly Sums[] {
  const groups = new Groups();
  for (const kernel of kernels) {
    if (!isWork(kernel)) continue;
    const row = groups.of(kernelKey(kernel));
    row.count++;
    row.deviceTimeTotal += kernel.duration;
    row.selfDeviceTimeTotal += kernel.duration;
  }
  return groups.all;
}

const kernelKey = ({ name, collective }: KernelEvent): string =>
  collective === null ? name : `${name} (${collective.group})`;
