/** What a graph executes, as text: one line a command, with numbered buffers. */
import type { CollectiveGroup } from '../../core/collective.js';
import { formatShape } from '../../core/shape.js';
import { type FusedProgram, fusedPointwiseOp, programText } from '../../ops/fused-pointwise.js';
import type { NumberedSteps, Step } from './graph-module.js';
import { formatMeta, type ValueMeta } from './node.js';
import { isView, isWait } from './traits.js';

/** The operands that calls overwrite with their results. */
type Updated = ReadonlyMap<Step, number>;

const NONE: Updated = new Map();

/**
 * The commands of a graph in order. Results are buffers with numbers; views stand where they are
 * read; a call that writes into memory that is there ends in `_`, and names that first. `first` is
 * the line above.
 */
export function kernelText(first: string, graph: NumberedSteps, updated: Updated = NONE): string {
  const text = new KernelText(graph, updated);
  const lines = graph.steps.flatMap((step) => text.linesOf(step));
  const results = graph.results.map((value) => text.of(value));
  return [`// ${first}`, ...lines, `return (${results.join(', ')})`].join('\n');
}

class KernelText {
  private readonly graph: NumberedSteps;
  private readonly updated: Updated;
  private readonly values = new Map<number, string>();
  private readonly counts = new Map<string, number>();

  constructor(graph: NumberedSteps, updated: Updated) {
    this.graph = graph;
    this.updated = updated;
  }

  /** A value as commands name it. */
  of(value: number): string {
    return this.values.get(value) ?? this.graph.names[value] ?? `value${value}`;
  }

  /** The line of a step; a view has none. */
  linesOf(step: Step): string[] {
    const { node, at } = step;
    const operands = step.inputs.map((value) => this.of(value));
    if (isWait(node) && isView(node)) {
      this.values.set(at, operands[0] as string);
      return [`${node.op?.name}(${operands[0]})`];
    }
    if (isView(node)) {
      const [first, ...others] = operands;
      const params = [...others, ...valuesOf(node.params)].join(', ');
      this.values.set(at, `${first}.${node.op?.name}(${params})`);
      return [];
    }
    const overwritten = step.into >= 0 ? step.into : (this.updated.get(step) ?? -1);
    const isInPlace = overwritten >= 0;
    if (isInPlace) operands.unshift(this.of(overwritten));
    const call = `${nameOf(step)}${isInPlace ? '_' : ''}(${operands.join(', ')})`;
    const params = [
      ...paramsOf(node.params),
      ...(step.draw < 0 ? [] : [`draw=${this.of(step.draw)}`]),
    ];
    // An op that only changes its operands has no result.
    const length = node.kind === 'call' ? node.metas.length : step.outputs;
    const results = Array.from({ length }, (_, i) =>
      isInPlace && i === 0 ? this.of(overwritten) : this.newName(step),
    );
    for (const [i, name] of results.entries()) this.values.set(at + i, name);
    const made = isInPlace ? results.slice(1) : results;
    const begin = made.length === 0 ? '' : `${made.join(', ')} = `;
    const about = comment(step);
    return [[`${begin}${call}`, params.join(' '), about].filter((part) => part !== '').join('  ')];
  }

  private newName({ node }: Step): string {
    const kind = node.kind === 'call' ? 'buf' : (node.effect ?? 'value');
    const count = this.counts.get(kind) ?? 0;
    this.counts.set(kind, count + 1);
    return `${kind}${count}`;
  }
}

/** A fused call has the names of what it computes. */
function nameOf({ node }: Step): string {
  if (node.op === fusedPointwiseOp) return node.name.replace(/_\d+$/, '');
  return node.op?.name ?? node.effect ?? '';
}

function comment({ node: { op, params, inputs, metas } }: Step): string {
  const parts = [
    ...(op === fusedPointwiseOp
      ? [programText((params as { program: FusedProgram }).program, inputs.length)]
      : []),
    metas.map((meta: ValueMeta) => formatMeta(meta)).join(', '),
  ].filter((part) => part !== '');
  return parts.length === 0 ? '' : `// ${parts.join('  ')}`;
}

/** The parameters of a view, without their names. */
const valuesOf = (params: object): string[] =>
  Object.entries(params).flatMap(([name, value]) => paramText(name, value) ?? []);

/** Parameters that are plain values, and the group of a collective by its name. */
function paramsOf(params: object): string[] {
  return Object.entries(params).flatMap(([name, value]) => {
    const shown = paramText(name, value);
    return shown === null ? [] : [`${name}=${shown}`];
  });
}

function paramText(name: string, value: unknown): string | null {
  if (isPlain(value)) return String(value);
  if (Array.isArray(value)) return value.every(isPlain) ? formatShape(value as number[]) : null;
  if (name !== 'group' || value === null) return null;
  const { meshDim, name: group } = value as CollectiveGroup & { meshDim?: string | null };
  return meshDim ?? group;
}

const isPlain = (value: unknown): boolean => ['number', 'boolean', 'string'].includes(typeof value);
