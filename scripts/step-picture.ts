/**
 * Draws the picture of docs/fully-sharded.md from a trace of one rank that was recorded:
 * bench/results/…-step.json. With --check, fails if it differs; `--trace FILE`, a Chrome trace of
 * `npm run bench:gpus -- --traces`, records that first.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';
import { axisOf, drawBox, drawEnds, drawHead, drawPage, LEFT, LETTER } from './slice-picture.js';
import { writeOrCheck } from './written-parts.js';

const FILE = fileURLToPath(
  new URL('../bench/results/2026-11-26-4x-nvidia-h100-step.json', import.meta.url),
);

const COMPUTE = ['product', 'attention', 'optimizer', 'other'] as const;
const COLLECTIVES = ['allGather', 'reduceScatter'] as const;
type Kind = (typeof COMPUTE)[number] | (typeof COLLECTIVES)[number] | 'cast';

/** Kernels of one kind that follow each other, or a collective; times are in microseconds. */
interface Slice {
  readonly kind: Kind;
  readonly start: number;
  readonly end: number;
  /** What the collective is of. */
  readonly of?: string;
}

interface Kept {
  readonly about: string;
  readonly slices: readonly Slice[];
}

interface TraceEvent {
  readonly cat?: string;
  readonly name: string;
  readonly tid: number;
  readonly ts: number;
  readonly dur: number;
  readonly args?: { readonly kind?: string; readonly where?: string };
}

const PATTERNS: readonly (readonly [RegExp, Kind])[] = [
  [/nvjet|matmul|product|gemm/, 'product'],
  [/forward_kernel|backward_kernel|row_stats/, 'attention'],
  [/update_dense/, 'optimizer'],
];
const kindOf = (name: string): Kind => PATTERNS.find(([p]) => p.test(name))?.[1] ?? 'other';

/** The slices of a trace. Kernels that are less than 3 us apart are one. */
function slicesOf(events: readonly TraceEvent[]): Slice[] {
  const seen = events.filter(({ cat }) => /^(kernel|collective|gpu_mem)/.test(cat ?? ''));
  const begin = Math.min(...seen.map(({ ts }) => ts));
  const streams = new Set(seen.filter(({ cat }) => cat === 'collective').map(({ tid }) => tid));
  const last = new Map<number, { kind: Kind; start: number; end: number }>();
  const slices: Slice[] = [];
  for (const { cat, name, tid, ts, dur, args } of seen.sort((a, b) => a.ts - b.ts)) {
    const start = Math.round(ts - begin);
    const end = Math.round(ts - begin + dur);
    if (cat === 'collective') {
      const of = (args?.where ?? '').replace('fullyShard of ', '');
      slices.push({ kind: args?.kind as Kind, start, end, of });
      continue;
    }
    const kind = streams.has(tid) ? 'cast' : kindOf(name);
    const before = last.get(tid);
    if (before?.kind === kind && start - before.end < 3) {
      before.end = Math.max(before.end, end);
      continue;
    }
    const slice = { kind, start, end };
    last.set(tid, slice);
    slices.push(slice);
  }
  return slices;
}

const [ROW, GAP] = [22, 16];
const fills: Readonly<Record<Kind, string>> = {
  allGather: '#9ecbf5',
  reduceScatter: '#f6c177',
  cast: '#d9d9d9',
  product: '#a8d8a0',
  attention: '#cdb8ec',
  optimizer: '#f2a9a9',
  other: '#e9e3c8',
};
const names: Readonly<Record<Kind, string>> = {
  allGather: 'all-gather',
  reduceScatter: 'reduce-scatter',
  cast: 'conversions of shards and gradients',
  product: 'matrix products',
  attention: 'attention',
  optimizer: 'AdamW',
  other: 'norms, GELU, additions',
};

/** Two rows: the stream of the group, and that of compute below it. */
function rows(slices: readonly Slice[], from: number, to: number, top: number): string[] {
  const x = axisOf(from, to);
  const box = ({ kind, start, end, of }: Slice): string =>
    drawBox(x, {
      start: Math.max(start, from),
      end: Math.min(end, to),
      y: COMPUTE.some((each) => each === kind) ? top + ROW + 4 : top,
      height: ROW,
      label: of?.replace('layers.', '') ?? '',
      title: `${names[kind]}${of === undefined ? '' : ` of ${of}`}, ${end - start} us`,
      style: `fill="${fills[kind]}"`,
    });
  return [
    `<text x="8" y="${top + 15}">collectives</text>`,
    `<text x="8" y="${top + ROW + 19}">compute</text>`,
    ...slices.filter(({ start, end }) => end > from && start < to).map(box),
    drawEnds(from, to, top + 2 * ROW + 18),
  ];
}

/** From the gather of one layer in the middle of backward to that of the third one after it. */
function zoomed(slices: readonly Slice[]): [number, number] {
  const reductions = slices.filter(({ kind }) => kind === 'reduceScatter');
  const middle = reductions.length >> 1;
  const start = (at: number): number => (reductions[at] as Slice).start;
  return [start(middle) - 200, start(middle + 3) + 600];
}

function legend(top: number): string {
  let x = LEFT;
  return Object.entries(names)
    .map(([kind, name]) => {
      const at = x;
      x += name.length * LETTER + 38;
      return (
        `<rect x="${at}" y="${top}" width="12" height="12" fill="${fills[kind as Kind]}"/>` +
        `<text x="${at + 16}" y="${top + 10}">${name}</text>`
      );
    })
    .join('\n');
}

function draw({ about, slices }: Kept): string {
  const end = Math.max(...slices.map((slice) => slice.end));
  const block = 2 * ROW + 30;
  const tops = [58, 58 + block + GAP + 16] as const;
  const zoom = zoomed(slices);
  return drawPage(about, tops[1] + block, [
    legend(28),
    ...rows(slices, 0, end, tops[0]),
    drawHead('Three layers of the backward pass; numbers are layers', tops[1] - 10),
    ...rows(slices, ...zoom, tops[1]),
  ]);
}

const at = process.argv.indexOf('--trace');
if (at > 0) {
  const [file, about] = process.argv.slice(at + 1) as [string, string];
  const bytes = readFileSync(file);
  const text = (file.endsWith('.gz') ? gunzipSync(bytes) : bytes).toString();
  const { traceEvents } = JSON.parse(text) as { traceEvents: TraceEvent[] };
  writeFileSync(FILE, `${JSON.stringify({ about, slices: slicesOf(traceEvents) })}\n`);
}
const kept = JSON.parse(readFileSync(FILE, 'utf8')) as Kept;
process.exitCode = writeOrCheck('docs/images/step-of-four-gpus.svg', () => draw(kept));
