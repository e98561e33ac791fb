/** Prints tensors as PyTorch does: aligns values and summarises large tensors. */
import { bool, float32, int64 } from './dtype.js';
import { DistributedError } from './errors.js';
import { FAKE_HANDLE } from './storage.js';
import type { Tensor } from './tensor.js';

const SUMMARY_ABOVE = 1000;
const EDGE_ITEMS = 3;
const LINE_WIDTH = 80;

type Values = ArrayLike<number | bigint>;

/** `tensor([[1., 2.]], dtype=..., device=..., gradFn=...)`. Reads the values, so it blocks. */
export function formatTensor(t: Tensor, readValues: (t: Tensor) => Values): string {
  if (t.sharding !== null)
    return (
      `DTensor(${formatTensor(t.sharding.local, readValues)}, ` +
      `${t.sharding.spec}${historyOf(t)})`
    );
  const body = bodyOf(t, readValues);
  const details: string[] = [];
  if (t.numel() === 0 && t.sizes.length !== 1 && !t.isFake)
    details.push(`size=[${t.sizes.join(', ')}]`);
  if (t.dtype !== float32 && t.dtype !== int64 && t.dtype !== bool)
    details.push(`dtype=${t.dtype.name}`);
  if (t.device.type !== 'cpu') details.push(`device='${t.device}'`);
  return `tensor(${[body, ...details].join(', ')}${historyOf(t)})`;
}

function bodyOf(t: Tensor, readValues: (t: Tensor) => Values): string {
  if (t.disposed || t.storage?.handle === 0) return '(freed)';
  const size = `size=[${t.sizes.join(', ')}]`;
  if (t.storage?.handle === FAKE_HANDLE) return `..., ${size}`;
  try {
    return formatValues(t, readValues(t));
  } catch (error) {
    // Ranks that share a process cannot wait for one another here, and printing must not end a
    // program.
    if (error instanceof DistributedError) return `..., ${size}, await read() for its values`;
    throw error;
  }
}

function historyOf(t: Tensor): string {
  if (t.gradFn !== null) return `, gradFn=<${t.gradFn.name}>`;
  return t.requiresGrad ? ', requiresGrad=true' : '';
}

function formatValues(t: Tensor, values: Values): string {
  if (t.numel() === 0) return '[]';
  const summarise = t.numel() > SUMMARY_ABOVE;
  const shown = shownIndices(t.sizes, summarise).map((i) => values[i] as number | bigint);
  const format = numberFormat(t, shown);
  const width = shown.reduce<number>((w, v) => Math.max(w, format(v).length), 0);
  const pad = (v: number | bigint): string => format(v).padStart(width);
  const lines = (depth: number, offset: number, step: number): string => {
    if (depth === t.sizes.length) return pad(values[offset] as number | bigint);
    const size = t.sizes[depth] as number;
    const inner = size === 0 ? 0 : step / size;
    const last = depth === t.sizes.length - 1;
    const parts = edgeItems(size, summarise).map((i) =>
      i !== null ? lines(depth + 1, offset + i * inner, inner) : last ? ' ...' : '...',
    );
    if (last) return `[${wrap(parts, depth)}]`;
    const lineBreaks = '\n'.repeat(t.sizes.length - depth - 1);
    return `[${parts.join(`,${lineBreaks}${' '.repeat(8 + depth)}`)}]`;
  };
  return lines(0, 0, t.numel());
}

/** Breaks a row of many numbers into lines. */
function wrap(parts: readonly string[], depth: number): string {
  const lines: string[] = [];
  let line = '';
  for (const part of parts) {
    if (line && line.length + part.length > LINE_WIDTH - 9 - depth) {
      lines.push(line);
      line = part;
    } else line = line ? `${line}, ${part}` : part;
  }
  lines.push(line);
  return lines.join(`,\n${' '.repeat(8 + depth)}`);
}

function edgeItems(size: number, summarise: boolean): (number | null)[] {
  if (!summarise || size <= 2 * EDGE_ITEMS) return Array.from({ length: size }, (_, i) => i);
  const head = [0, 1, 2];
  return [...head, null, ...head.map((i) => size - EDGE_ITEMS + i)];
}

function shownIndices(shape: readonly number[], summarise: boolean): number[] {
  let indices = [0];
  for (const size of shape) {
    const items = edgeItems(size, summarise).filter((i): i is number => i !== null);
    indices = indices.flatMap((at) => items.map((i) => at * size + i));
  }
  return shape.includes(0) ? [] : indices;
}

function numberFormat(
  t: Tensor,
  shown: readonly (number | bigint)[],
): (v: number | bigint) => string {
  if (t.dtype === bool) return (v) => (v ? 'true' : 'false');
  if (!t.dtype.isFloatingPoint) return (v) => String(v);
  const finite = shown.map(Number).filter(Number.isFinite);
  const special = (v: number): string => (Number.isNaN(v) ? 'nan' : v > 0 ? 'inf' : '-inf');
  if (finite.every(Number.isInteger) && finite.every((v) => Math.abs(v) < 1e8))
    return (v) => (Number.isFinite(Number(v)) ? `${Number(v)}.` : special(Number(v)));
  const magnitudes = finite.filter((v) => v !== 0).map(Math.abs);
  const largest = Math.max(0, ...magnitudes);
  const smallest = Math.min(Number.POSITIVE_INFINITY, ...magnitudes);
  const scientific = largest >= 1e8 || smallest < 1e-4 || largest / smallest > 1000;
  return (v) =>
    Number.isFinite(Number(v))
      ? scientific
        ? exponential(Number(v))
        : Number(v).toFixed(4)
      : special(Number(v));
}

/** `1.0000e-05`: two digits of exponent, as C prints it. */
function exponential(v: number): string {
  return v.toExponential(4).replace(/e([+-])(\d)$/, 'e$10$2');
}
