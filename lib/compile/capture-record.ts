/** What became of calls that no earlier capture served, for reports. */
import type { CompileError } from '../core/errors.js';
import type { Graph } from './graph/graph.js';
import type { Difference } from './guards/facts.js';
import type { Guards } from './guards/guards.js';

/** Why a function runs uncompiled. Not the error, whose stack keeps arguments alive. */
export interface Refusal {
  readonly reason: string;
  readonly site: string;
  readonly path: string;
}

/** What became of one call that no earlier capture served. */
export interface CaptureRecord {
  /** The name of the function or of the module's class. */
  readonly functionName: string;
  /** Null if the function runs uncompiled. */
  readonly graph: Graph | null;
  /** The reason why it runs uncompiled. */
  readonly refusal: Refusal | null;
  readonly guards: Pick<Guards, 'sentences'>;
  /** Why each earlier capture did not serve the call; empty if a dynamic graph did. */
  readonly because: readonly Difference[];
  /**
   * Why the graph has fixed shapes although others differ in sizes only; null if that is not so.
   */
  readonly specialised: string | null;
}

export function refusalOf({ message, details }: CompileError): Refusal {
  const { what = message, at = '', path = '' } = details as Record<string, string | undefined>;
  return { reason: what, site: at, path };
}

/** A graph that the calls of a function choose themselves. */
export const recordOfSegment = (functionName: string, graph: Graph): CaptureRecord => ({
  functionName,
  graph,
  refusal: null,
  guards: { sentences: () => ['the ops that the function calls, and their operands, are these'] },
  because: [],
  specialised: null,
});
