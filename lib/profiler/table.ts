/** Tables of profiles, as PyTorch prints them. */
import { checkNumber, checkOneOf, optionsOf } from '../core/options.js';
import type { EventAverage, KeyAverages, TableParts } from './key-averages.js';

/** A column of numbers to sort by, largest first. */
export type SortKey = Exclude<keyof EventAverage, 'key' | 'inputShapes'>;

/** Options of {@link KeyAverages.table}. */
export interface TableOptions {
  /** The column to sort by: by default the time of devices for kernels, else of the host. */
  readonly sortBy?: SortKey;
  /** The most rows. Default 100; -1 for all. */
  readonly rowLimit?: number;
  /** The most characters of a name. Default 55. */
  readonly maxNameColumnWidth?: number;
}

const SORT_KEYS: readonly SortKey[] = [
  'count',
  'cpuTimeTotal',
  'selfCpuTimeTotal',
  'deviceTimeTotal',
  'selfDeviceTimeTotal',
  'cpuMemoryUsage',
  'selfCpuMemoryUsage',
  'deviceMemoryUsage',
  'selfDeviceMemoryUsage',
];

const FEWEST_NAME_CHARACTERS = 8;
const SHAPES_WIDTH = 80;
const GAP = '  ';

interface Column {
  readonly head: string;
  readonly cell: (row: EventAverage) => string;
  readonly isText?: boolean;
}

/** @throws ArgumentError for options that are none */
export function printTable(
  averages: KeyAverages,
  parts: TableParts,
  options: TableOptions,
): string {
  const op = 'table';
  const {
    sortBy = parts.of === 'kernel' || !parts.host ? 'selfDeviceTimeTotal' : 'cpuTimeTotal',
    rowLimit = 100,
    maxNameColumnWidth = 55,
  } = optionsOf(op, options, 'sortBy rowLimit maxNameColumnWidth');
  checkOneOf(op, 'sortBy', sortBy, SORT_KEYS);
  checkNumber(op, 'rowLimit', rowLimit, { from: -1, whole: true });
  checkNumber(op, 'maxNameColumnWidth', maxNameColumnWidth, {
    from: FEWEST_NAME_CHARACTERS,
    whole: true,
  });
  const sorted = [...averages.rows].sort((a, b) => b[sortBy] - a[sortBy]);
  const rows = rowLimit < 0 ? sorted : sorted.slice(0, rowLimit);
  const columns = columnsOf(averages, parts, maxNameColumnWidth);
  const lines = [
    ...grid(columns, rows),
    ...(parts.host ? [`Self CPU time total: ${duration(averages.selfCpuTimeTotal)}`] : []),
    `Self device time total: ${duration(averages.selfDeviceTimeTotal)}`,
  ];
  return lines.join('\n');
}

function columnsOf(averages: KeyAverages, parts: TableParts, width: number): readonly Column[] {
  const title = { op: 'Name', module: 'Module', kernel: 'Kernel' }[parts.of];
  const { selfCpuTimeTotal: ofHost, selfDeviceTimeTotal: ofDevice } = averages;
  return [
    { head: title, cell: ({ key }) => shortened(key, width), isText: true },
    ...(parts.host ? times('CPU', 'cpuTimeTotal', 'selfCpuTimeTotal', ofHost) : []),
    ...(parts.of === 'kernel'
      ? times('device', null, 'selfDeviceTimeTotal', ofDevice)
      : times('device', 'deviceTimeTotal', 'selfDeviceTimeTotal', ofDevice)),
    ...(parts.memory ? memoryColumns(averages.rows) : []),
    { head: '# of Calls', cell: ({ count }) => String(count) },
    ...(parts.shapes
      ? [
          {
            head: 'Input Shapes',
            cell: (row: EventAverage) => shortened(row.inputShapes, SHAPES_WIDTH),
            isText: true,
          },
        ]
      : []),
  ];
}

function times(of: string, total: SortKey | null, self: SortKey, whole: number): readonly Column[] {
  const share = (time: number): string => `${whole > 0 ? ((100 * time) / whole).toFixed(2) : 0}%`;
  const columns: Column[] = [
    { head: `Self ${of} %`, cell: (row) => share(row[self]) },
    { head: `Self ${of}`, cell: (row) => duration(row[self]) },
  ];
  if (total !== null)
    columns.push(
      { head: `${of} total %`, cell: (row) => share(row[total]) },
      { head: `${of} total`, cell: (row) => duration(row[total]) },
    );
  const mean = (row: EventAverage): string => duration(row[total ?? self] / row.count);
  columns.push({ head: `${of} time avg`, cell: (row) => (row.count === 0 ? '' : mean(row)) });
  return columns;
}

function memoryColumns(rows: readonly EventAverage[]): readonly Column[] {
  const onHost: readonly Column[] = [
    { head: 'CPU Mem', cell: (row) => memorySize(row.cpuMemoryUsage) },
    { head: 'Self CPU Mem', cell: (row) => memorySize(row.selfCpuMemoryUsage) },
  ];
  if (rows.every((row) => row.deviceMemoryUsage === 0 && row.selfDeviceMemoryUsage === 0))
    return onHost;
  return [
    ...onHost,
    { head: 'Device Mem', cell: (row) => memorySize(row.deviceMemoryUsage) },
    { head: 'Self Device Mem', cell: (row) => memorySize(row.selfDeviceMemoryUsage) },
  ];
}

function grid(columns: readonly Column[], rows: readonly EventAverage[]): readonly string[] {
  const cells = [
    columns.map(({ head }) => head),
    ...rows.map((row) => columns.map((c) => c.cell(row))),
  ];
  const widths = columns.map((_, i) =>
    Math.max(...cells.map((line) => (line[i] as string).length)),
  );
  const rule = widths.map((width) => '-'.repeat(width)).join(GAP);
  const lines = cells.map((line) =>
    line
      .map((cell, i) => {
        const width = widths[i] as number;
        return columns[i]?.isText ? cell.padEnd(width) : cell.padStart(width);
      })
      .join(GAP)
      .trimEnd(),
  );
  return [rule, lines[0] as string, rule, ...lines.slice(1), rule];
}

const shortened = (name: string, width: number): string =>
  name.length <= width ? name : `${name.slice(0, width - 3)}...`;

/** Microseconds, milliseconds or seconds. */
function duration(us: number): string {
  if (us >= 1e6) return `${(us / 1e6).toFixed(3)}s`;
  return us >= 1e3 ? `${(us / 1e3).toFixed(3)}ms` : `${us.toFixed(3)}us`;
}

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

function memorySize(bytes: number): string {
  let [size, unit] = [bytes, 0];
  while (Math.abs(size) >= 1024 && unit < UNITS.length - 1) {
    size /= 1024;
    unit++;
  }
  return unit === 0 ? `${size} B` : `${size.toFixed(2)} ${UNITS[unit]}`;
}
