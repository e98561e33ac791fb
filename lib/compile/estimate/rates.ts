/** Measured rates of machines, by which the time of a graph is estimated. */

import { ArgumentError } from '../../core/errors.js';
import { checkNumber, optionsOf, unexpected } from '../../core/options.js';
import type { Graph } from '../graph/graph.js';

/** How fast groups of up to some number of ranks communicate. */
export interface LinkRates {
  /** The largest group that the link serves; `Infinity` for all. */
  readonly ranks: number;
  /**
   * Seconds of a collective without data among two ranks. Each doubling of the ranks adds as many.
   */
  readonly latency: number;
  /** Bytes a second that each rank sends. */
  readonly bandwidth: number;
}

/** How fast a machine computes, moves memory, starts kernels and communicates. */
export interface Rates {
  /** What the rates are of, as tables show it. */
  readonly name: string;
  /** Floating-point operations a second of products, by dtype; other dtypes run as `float32`. */
  readonly flops: Readonly<Record<string, number>>;
  /** Bytes a second that kernels read and write. */
  readonly memory: number;
  /** Seconds that each kernel takes at least. */
  readonly launch: number;
  /** The links, from the smallest groups to the largest. The last one serves all larger groups. */
  readonly links: readonly LinkRates[];
}

/** A known table of rates: `'h200'`, `'h100'` or `'cpu'`. */
export type RatesName = 'h200' | 'h100' | 'cpu';

/**
 * - `h200`: docs/performance.md (products of 8192 cubed, a copy of 1 GiB, the loop of raw launches,
 *   all-gathers of 256 MiB and all-reduces of 8 B on four GPUs). The link between machines is not
 *   measured: it is a port of 400 Gbit/s a GPU.
 * - `h100`: a bfloat16 product of 8192 x 14336 x 4096, and the collectives of an 8B model on four
 *   GPUs beside its kernels (bench/results). Memory is the H200's rate by the ratio of the data
 *   sheets, 3.35 to 4.8 TB/s; float32, float64, launches and latencies are those of the H200, which
 *   has the same processors and links.
 * - `cpu`: products on two cores of an AMD EPYC (bench/results), sums in place of 64 MiB, and
 *   all-reduces of 8 B and 64 MiB by ranks that share its memory.
 */
const TABLES: Readonly<Record<RatesName, Rates>> = {
  h200: {
    name: 'NVIDIA H200, eight in a machine',
    flops: { bfloat16: 714e12, float16: 714e12, float32: 51e12, float64: 61e12 },
    memory: 4.27e12,
    launch: 3.6e-6,
    links: [
      { ranks: 8, latency: 4e-6, bandwidth: 327e9 },
      { ranks: Number.POSITIVE_INFINITY, latency: 10e-6, bandwidth: 50e9 },
    ],
  },
  h100: {
    name: 'NVIDIA H100, eight in a machine',
    flops: { bfloat16: 791e12, float16: 791e12, float32: 51e12, float64: 61e12 },
    memory: 2.98e12,
    launch: 3.6e-6,
    links: [
      { ranks: 8, latency: 4e-6, bandwidth: 228e9 },
      { ranks: Number.POSITIVE_INFINITY, latency: 10e-6, bandwidth: 50e9 },
    ],
  },
  cpu: {
    name: 'CPU, two cores',
    flops: { bfloat16: 873e9, float32: 418e9, float64: 209e9 },
    memory: 20e9,
    launch: 0.5e-6,
    links: [{ ranks: Number.POSITIVE_INFINITY, latency: 100e-6, bandwidth: 6e9 }],
  },
};

/** The name of the rates of the device that a graph runs on. */
export function ratesNameOf(graph: Graph): RatesName {
  const isOnGpu = graph.nodes.some(({ metas }) => metas.some((m) => m.device.type === 'cuda'));
  return isOnGpu ? 'h200' : 'cpu';
}

/** The rates of a name or a table. @throws ArgumentError for what is neither */
export function ratesOf(op: string, given: RatesName | Rates): Rates {
  if (typeof given === 'string') {
    if (Object.hasOwn(TABLES, given)) return TABLES[given];
    throw unexpected(op, 'rates', `${Object.keys(TABLES).join(', ')} or a table of rates`, given);
  }
  const { flops, memory, launch, links } = optionsOf(op, given, 'name flops memory launch links');
  checkNumber(op, 'rates.memory', memory, { above: 0 });
  checkNumber(op, 'rates.launch', launch, { from: 0 });
  checkFlops(op, flops);
  if (!Array.isArray(links) || links.length === 0)
    throw unexpected(op, 'rates.links', 'a list of at least one link', links);
  let before = 1;
  for (const link of links as readonly LinkRates[]) {
    const { ranks, latency, bandwidth } = optionsOf(
      `${op}: rates.links`,
      link,
      'ranks latency bandwidth',
    );
    checkNumber(op, 'rates.links.latency', latency, { from: 0 });
    checkNumber(op, 'rates.links.bandwidth', bandwidth, { above: 0 });
    if (typeof ranks !== 'number' || !(ranks > before))
      throw new ArgumentError(
        `${op}: expected rates.links in the order of their ranks, at least 2, got ${ranks} after ` +
          `${before}`,
        { op, argument: 'rates' },
      );
    before = ranks;
  }
  return given;
}

function checkFlops(op: string, flops: unknown): void {
  if (typeof flops !== 'object' || flops === null || !('float32' in flops))
    throw unexpected(op, 'rates.flops', 'rates by dtype, float32 among them', flops);
  for (const [dtype, rate] of Object.entries(flops))
    checkNumber(op, `rates.flops.${dtype}`, rate, { above: 0 });
}

/** Seconds of a kernel that computes and moves this much. */
export function computeSeconds(
  rates: Rates,
  {
    flops,
    dtype,
    bytes,
  }: { readonly flops: number; readonly dtype: string; readonly bytes: number },
): number {
  const rate = rates.flops[dtype] ?? (rates.flops['float32'] as number);
  return Math.max(rates.launch, flops / rate, bytes / rates.memory);
}

/** Seconds of a collective in which each rank of a group sends some bytes. */
export function communicationSeconds(rates: Rates, ranks: number, sentBytes: number): number {
  if (ranks <= 1) return 0;
  const { links } = rates;
  const link = (links.find((each) => each.ranks >= ranks) ?? links.at(-1)) as LinkRates;
  return link.latency * Math.ceil(Math.log2(ranks)) + sentBytes / link.bandwidth;
}
