/**
 * Prints the figures of several GPUs as a table: ours, PyTorch's, and bus bandwidth where it
 * matters.
 */

/** Microseconds per call of a long batch, on the host and on the device, and bus bandwidth. */
export interface Times {
  us: number;
  hostUs?: number;
  deviceUs?: number;
  busGBps?: number;
}

export interface Compared {
  readonly name: string;
  readonly ours: Times | null;
  readonly torch: Times | null;
  /** Median of the ratios of the pairs, ours / PyTorch's. */
  readonly ratio?: number;
  readonly least?: number;
  readonly largest?: number;
}

export interface CollectivesReport {
  readonly machine: string;
  readonly date: string;
  readonly commit: string;
  readonly rounds: number;
  readonly torch: string;
  readonly rows: readonly Compared[];
}

/** Measured NVLink bandwidth between GPUs of one machine, the limit of bus bandwidth. */
const LINK_GBPS = 370;

const us = (value: number | undefined): string =>
  value === undefined ? '' : value.toFixed(value < 100 ? 1 : 0);
const beside = (a: number | undefined, b: number | undefined): string =>
  a === undefined && b === undefined ? '' : `${us(a) || '-'} / ${us(b) || '-'}`;

function line({ name, ours, torch, ratio, least, largest }: Compared): string[] {
  const { hostUs, deviceUs, busGBps } = ours ?? {};
  const isLarge = busGBps !== undefined && busGBps > LINK_GBPS / 10;
  const rate = isLarge
    ? `${busGBps.toFixed(0)} GB/s, ${((100 * busGBps) / LINK_GBPS).toFixed(0)} %`
    : '';
  return [
    name.replace(/ (\d+) B/, (_, bytes: string) => ` of ${sizeOf(Number(bytes))}`),
    us(ours?.us),
    us(torch?.us),
    ratio === undefined
      ? ''
      : `${ratio.toFixed(2)}${least === undefined ? '' : ` (${least.toFixed(2)} to ${largest?.toFixed(2)})`}`,
    beside(hostUs, torch?.hostUs),
    beside(deviceUs, torch?.deviceUs),
    rate,
  ];
}

function sizeOf(bytes: number): string {
  if (bytes >= 2 ** 30) return `${bytes / 2 ** 30} GiB`;
  if (bytes >= 2 ** 20) return `${bytes / 2 ** 20} MiB`;
  return bytes >= 2 ** 10 ? `${bytes / 2 ** 10} KiB` : `${bytes} B`;
}

/** The table as Markdown, one line for each row. */
export function printedCollectives(report: CollectivesReport): string {
  const head = [
    'row',
    'ours, us',
    'PyTorch, us',
    'ours / PyTorch',
    'host, ours / PyTorch',
    'device, ours / PyTorch',
    'bus bandwidth, of the limit',
  ];
  const table = [head, ['---', ...Array(head.length - 1).fill('--:')], ...report.rows.map(line)];
  return table.map((cells) => `| ${cells.join(' | ')} |`).join('\n');
}
