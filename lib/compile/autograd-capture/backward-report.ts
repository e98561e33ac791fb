/** What `compiledAutograd` makes of backward passes, as a report. */
import type { Graph } from '../graph/graph.js';

/** A backward pass in a {@link BackwardReport}. */
export interface BackwardPassReport {
  /** The graph that ran; null if the engine ran the pass uncompiled. */
  readonly graph: Graph | null;
  /** Whether the graph is that of an earlier pass. */
  readonly isReplay: boolean;
  /** Why the pass ran uncompiled; null for one that ran as a graph. */
  readonly reason: string | null;
}

/** What became of backward passes, see `compiledAutograd.explain`. `String(report)` is a text. */
export interface BackwardReport {
  /** The passes, in order. */
  readonly passes: readonly BackwardPassReport[];
  /** The report as text. */
  toString(): string;
}

/** A report of these passes. */
export function reportOf(passes: readonly BackwardPassReport[]): BackwardReport {
  const text = (): string => passes.map(lineOf).join('\n');
  return Object.assign(Object.create({ toString: text }) as BackwardReport, { passes });
}

function lineOf({ graph, isReplay, reason }: BackwardPassReport, i: number): string {
  if (graph === null) return `pass ${i} ran uncompiled: ${reason}`;
  if (isReplay) return `pass ${i} ran the graph of an earlier pass`;
  const nodes = String(graph).split('\n');
  return [`pass ${i} was captured:`, ...nodes.map((node) => `  ${node}`)].join('\n');
}
