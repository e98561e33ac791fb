/** What became of calls that no earlier capture served, for reports. */
import type { ShardwiseError } from '../core/errors.js';
import type { CompileBackend, CompiledGraph } from './backends.js';
import type { Capture } from './capture/capture.js';
import type { Graph } from './graph/graph.js';
import type { Difference } from './guards/facts.js';
import type { Guards } from './guards/guards.js';
import type { ExpectedOutput } from './outputs.js';

/** Why a function runs uncompiled, or a graph as it is. Not the error, whose stack keeps arguments alive. */
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
  /** What the graph is compiled with. */
  readonly backend: CompileBackend;
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

/** The name of a function, or of the class of a module. */
export function nameOf(fn: (...args: never[]) => unknown): string {
  if ('forward' in fn) return fn.constructor.name;
  return fn.name || '(anonymous)';
}

export function refusalOf({ message, details }: ShardwiseError): Refusal {
  const { what = message, at = '', path = '' } = details as Record<string, string | undefined>;
  return { reason: what, site: at, path };
}

/** One capture for each graph, and those that are no graphs. */
export const latestOfGraphs = <E extends { readonly run: unknown }>(entries: readonly E[]): E[] => [
  ...new Map(entries.map((entry) => [entry.run ?? entry, entry])).values(),
];

/** A graph that the calls of a function choose themselves. */
export const recordOfSegment = (
  functionName: string,
  graph: Graph,
  backend: CompileBackend,
): CaptureRecord => ({
  functionName,
  graph,
  backend,
  refusal: null,
  guards: { sentences: () => ['the ops that the function calls, and their operands, are these'] },
  because: [],
  specialised: null,
});

/** What runs the calls that a capture serves. */
export interface Compiled {
  readonly graph: Graph | null;
  readonly run: CompiledGraph | null;
  readonly rebuild: Capture['rebuild'];
  /** The sizes of the symbols of a dynamic graph; empty for others. */
  readonly sizes: readonly number[];
  /** Whether backward passes are part of the graph. */
  readonly isWholeStep: boolean;
  /** What the first outputs are compared with; null after that. */
  unchecked: readonly ExpectedOutput[] | null;
}

/** Of a function that runs uncompiled. */
export const UNCOMPILED: Compiled = {
  graph: null,
  run: null,
  rebuild: () => undefined,
  sizes: [],
  isWholeStep: false,
  unchecked: null,
};

const observers = new Set<(record: CaptureRecord) => void>();

/** Passes each capture from now on to `observe`. */
export function observeCaptures(observe: (record: CaptureRecord) => void): void {
  observers.add(observe);
}

/** Reports a capture to those who observe. */
export function reportCapture(record: CaptureRecord): void {
  for (const observe of observers) observe(record);
}
