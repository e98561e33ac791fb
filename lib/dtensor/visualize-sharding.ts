/** Pictures of which rank holds which part of a tensor. */
import { ShardingError } from '../core/errors.js';
import { checkOneOf, withDefaults } from '../core/options.js';
import type { Tensor } from '../core/tensor.js';
import type { MeshLayout } from '../mesh/mesh-layout.js';
import { allPieces, meshCoordinates } from './geometry.js';
import { type LocalPart, partOf } from './local-part.js';
import { drawGrid } from './sharding-grid.js';
import { drawSvg } from './sharding-svg.js';
import type { DTensorSpec } from './spec.js';

/** Options of {@link visualizeSharding}. */
export interface VisualizeOptions {
  /** `'text'` (the default) is printed too, by the mesh's first rank; `'svg'` is a picture as text. */
  format?: 'text' | 'svg';
}

/** A part of the tensor along the two dims that are shown, and who holds it. */
export interface ShownPart {
  readonly row: Span;
  readonly column: Span;
  /** Such as `dp=0, tp=1`, or `mesh[0, 1]` where mesh dims have no names; several where it is in copies. */
  readonly ranks: readonly string[];
}

export interface Span {
  readonly from: number;
  readonly size: number;
}

/** A tensor as a rectangle: its dims that are cut, of which there are two at most. */
export interface ShownTensor {
  readonly title: string;
  /** Numbers of the tensor dims; null where there is only one, or none. */
  readonly dims: readonly [row: number | null, column: number | null];
  readonly sizes: readonly [rows: number, columns: number];
  readonly parts: readonly ShownPart[];
}

/**
 * Shows which rank holds which part of a distributed tensor, by its positions in the mesh: a table in the terminal, printed by the mesh's first rank, or
 * a picture as SVG. Returns the text. Tensors of more than two dims are shown along the dims that are cut. Nothing is communicated.
 *
 * @throws ShardingError for a plain tensor, or one that is cut along more than two dims; ArgumentError for another format
 * @see PyTorch `torch.distributed.tensor.debug.visualize_sharding`
 */
export function visualizeSharding(t: Tensor, options: VisualizeOptions = {}): string {
  const op = 'visualizeSharding';
  const { format } = withDefaults<Required<VisualizeOptions>>(op, { format: 'text' }, options);
  checkOneOf(op, 'format', format, ['text', 'svg']);
  const part = partOf(t);
  if (part === null) throw new ShardingError(`${op}: expected a distributed tensor, got a plain one. Every rank has its own.`, { op });
  const shown = shownTensor(op, part);
  if (format === 'svg') return drawSvg(shown);
  const text = drawGrid(shown);
  if (part.spec.mesh.getCoordinate()?.every((at) => at === 0)) console.log(text);
  return text;
}

function shownTensor(op: string, { spec }: LocalPart): ShownTensor {
  const dims = shownDims(op, spec);
  const sizes = dims.map((dim) => (dim === null ? 1 : (spec.shape[dim] as number))) as [number, number];
  const ranks = meshCoordinates(spec.mesh).map((coordinate) => positionIn(spec.mesh, coordinate));
  const parts = new Map<string, ShownPart & { ranks: string[] }>();
  allPieces(spec).forEach(({ shape, offsets }, i) => {
    const [row, column] = dims.map((dim) => (dim === null ? { from: 0, size: 1 } : { from: offsets[dim] as number, size: shape[dim] as number })) as [Span, Span];
    if (row.size === 0 || column.size === 0) return;
    const key = `${row.from},${column.from}`;
    const known = parts.get(key);
    if (known === undefined) parts.set(key, { row, column, ranks: [ranks[i] as string] });
    else known.ranks.push(ranks[i] as string);
  });
  return { title: String(spec), dims, sizes, parts: [...parts.values()] };
}

function positionIn({ meshDimNames }: MeshLayout, coordinate: readonly number[]): string {
  if (meshDimNames === null) return `mesh[${coordinate.join(', ')}]`;
  return coordinate.map((at, meshDim) => `${meshDimNames[meshDim]}=${at}`).join(', ');
}

/** The dims that are cut come first; others fill up to two. */
function shownDims(op: string, spec: DTensorSpec): [number | null, number | null] {
  const all = [...spec.shape.keys()];
  const cut = all.filter((dim) => spec.placements.some((placement) => placement.isShard(dim)));
  if (cut.length > 2) throw new ShardingError(`${op}: only two dims can be shown, and ${spec} is cut along ${cut.length}`, { op });
  const chosen = [...cut, ...all.filter((dim) => !cut.includes(dim))].slice(0, 2).sort((a, b) => a - b);
  return chosen.length === 2 ? [chosen[0] as number, chosen[1] as number] : [null, chosen[0] ?? null];
}
