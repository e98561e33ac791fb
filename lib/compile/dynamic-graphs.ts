/**
 * The dynamic graphs of a compiled function. A backend compiles each once. A capture at a new shape
 * only confirms that a graph serves the shape, because JavaScript may decide by sizes.
 */
import { CompileError } from '../core/errors.js';
import { isContiguousLayout, type Shape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import type { CompiledGraph } from './backends.js';
import { type AnyFunction, captureAtShapes } from './capture/capture.js';
import { generalise, type Sample, sameAtSizes } from './capture/generalise.js';
import { isMarked } from './dynamic-marks.js';
import { copyGraph } from './graph/copy.js';
import type { Graph } from './graph/graph.js';
import { type SizePlace, sizesIn } from './graph/symbols.js';
import type { GuardCollector } from './guards/guard-collector.js';
import { ModeFacts } from './guards/modes.js';
import { TensorFacts } from './guards/tensor-facts.js';

/** A graph for several shapes. */
export interface DynamicGraph {
  /** As it was generalised; the backend gets a copy. */
  readonly sample: Sample;
  /** The captures that it was made of. */
  readonly of: readonly Sample[];
  /** Whether the program asked for it, by a mark or an option. */
  readonly wasAsked: boolean;
  /** What the backend made of it, and the graph that the backend got. */
  compiled: { readonly graph: Graph; readonly run: CompiledGraph } | null;
}

/** A call that is captured again with other sizes. */
export interface CaptureAtShapes {
  readonly fn: AnyFunction;
  readonly args: readonly unknown[];
  /** Collects guards of one more capture. */
  guards(): GuardCollector;
}

/** Captures that are kept to be generalised with the next one. */
const MAX_SAMPLES = 8;
/** Captures of which one dynamic graph is made. */
const MAX_GENERALISED = 4;
/** Captures that failed to confirm a graph, after which a full function does not try. */
const MAX_MISSES = 3;
/** Captures at other sizes at a first call. */
const MAX_TRIALS = 24;

/** The dynamic graphs of one function on one rank. */
export class DynamicGraphs {
  private readonly graphs: DynamicGraph[] = [];
  private samples: Sample[] = [];
  private misses = 0;
  /** Why the latest capture got a graph of fixed shapes although others differ in sizes only. */
  reason: string | null = null;

  /** Whether a capture of a call may confirm a graph. */
  mayServe(inputs: readonly Tensor[]): boolean {
    return this.misses < MAX_MISSES && this.withSizesOf(inputs).length > 0;
  }

  /** The graphs that can have the sizes of these inputs. */
  withSizesOf(inputs: readonly Tensor[]): DynamicGraph[] {
    return this.graphs.filter((graph) => sizesOf(graph, inputs) !== null);
  }

  /** Counts a capture that confirmed no graph. */
  missed(): void {
    this.misses++;
  }

  /** The graph that a capture confirms; null if there is none. */
  serving(captured: Sample): DynamicGraph | null {
    return this.graphs.find(({ sample }) => sameAtSizes(sample, captured)) ?? null;
  }

  /** A graph of this capture and earlier ones; null if they do not agree. */
  generalised(captured: Sample): DynamicGraph | null {
    this.reason = null;
    const earlier = [
      ...this.graphs.map(({ of }) => of).filter(({ length }) => length < MAX_GENERALISED),
      ...this.samples.map((sample) => [sample]),
    ].reverse();
    for (const samples of earlier) {
      const made = this.add([...samples, captured]);
      if (made !== null) return made;
    }
    return null;
  }

  /** Keeps a capture, to be generalised with later ones. */
  keep(captured: Sample): void {
    this.samples.push(captured);
    if (this.samples.length > MAX_SAMPLES) this.samples.shift();
  }

  /**
   * A graph of the capture and of captures with other sizes of the arguments; null if none agrees.
   */
  generalisedAtOnce(
    capture: CaptureAtShapes,
    inputs: readonly Tensor[],
    captured: Sample,
    places: readonly SizePlace[],
  ): DynamicGraph | null {
    this.reason = null;
    let trials = MAX_TRIALS;
    const sampleAt = (classes: readonly (readonly SizePlace[])[]): Sample | null =>
      trials-- > 0 ? captureOf(capture, shapesOf(inputs, classes), captured.facts) : null;
    const agrees = (classes: readonly (readonly SizePlace[])[]): boolean => {
      const other = sampleAt(classes);
      if (other === null) return false;
      const { graph, reason } = generalise([captured, other]);
      this.reason ??= reason;
      return graph !== null;
    };
    const all = byEqualSizes(inputs, places);
    const accepted = agrees(all)
      ? all
      : all.flatMap((each) => {
          if (all.length > 1 && agrees([each])) return [each];
          return each.length === 1 ? [] : each.map((one) => [one]).filter((one) => agrees([one]));
        });
    for (let classes = accepted; classes.length > 0; classes = classes.slice(0, -1)) {
      const other = sampleAt(classes);
      const made = other === null ? null : this.add([captured, other], true);
      if (made !== null) return made;
    }
    return null;
  }

  private add(samples: readonly Sample[], wasAsked = false): DynamicGraph | null {
    const { graph, reason } = generalise(samples);
    this.reason ??= reason;
    if (graph === null) return null;
    const outer = new Set(samples.flatMap((sample) => [...sample.outer]));
    const { facts } = samples[0] as Sample;
    const sample = { graph, outer, facts };
    const made: DynamicGraph = { sample, of: samples, wasAsked, compiled: null };
    this.graphs.push(made);
    this.samples = this.samples.filter((sample) => !samples.includes(sample));
    this.reason = null;
    return made;
  }
}

/** The sizes of the symbols of a graph in these inputs; null if the graph does not serve them. */
export const sizesOf = ({ sample }: DynamicGraph, inputs: readonly Tensor[]): number[] | null =>
  sizesIn(sample.graph.symbols, (i) => inputs[i]?.sizes);

/** A copy of a captured graph, which the backend does not change. */
export function sampleOf(graph: Graph, guards: GuardCollector, inputs: readonly Tensor[]): Sample {
  const outer = guards.constantTensors;
  const facts = [...factsOf([...inputs, ...outer]), ...guards.statesSeen()];
  return { graph: copyGraph(graph).graph, outer, facts };
}

/** The modes, and of tensors what is no size: their history and which of them share memory. */
function factsOf(tensors: readonly Tensor[]): unknown[] {
  return [
    ...new ModeFacts().sentences(),
    ...tensors.flatMap((t) => [
      tensors.indexOf(t),
      tensors.findIndex(({ storage }) => storage !== null && storage === t.storage),
      t.base === null ? -1 : tensors.indexOf(t.base),
      ...new TensorFacts(t).apartFromSizes,
    ]),
  ];
}

/** The dims of inputs that may get other sizes: of tensors with memory of their own. */
export function changeablePlaces(inputs: readonly Tensor[], onlyMarked: boolean): SizePlace[] {
  return inputs.flatMap((t, input) => {
    const { storage, sizes: shape, strides } = t;
    const shares = inputs.some((other, i) => i !== input && other.storage === storage);
    if (storage === null || shares || t.base !== null || t.sharding !== null) return [];
    if (!isContiguousLayout(shape, strides)) return [];
    return [...shape.keys()]
      .filter((dim) => (shape[dim] as number) > 1 && (!onlyMarked || isMarked(t, dim)))
      .map((dim) => ({ input, dim }));
  });
}

/** @throws CompileError if a marked dim has only the size that is there */
export function checkMarks(
  inputs: readonly Tensor[],
  made: DynamicGraph | null,
  reason: string | null,
): void {
  const symbols = made?.sample.graph.symbols ?? [];
  const dynamic = new Set(symbols.flatMap(({ places }) => places.map(keyOf)));
  inputs.forEach((t, input) => {
    const fixed = t.sizes.findIndex(
      (size, dim) => size > 1 && isMarked(t, dim) && !dynamic.has(keyOf({ input, dim })),
    );
    if (fixed < 0) return;
    throw new CompileError(
      `compile: dim ${fixed} of input ${input} is marked as dynamic, and the function has a ` +
        `graph for the size ${t.sizes[fixed]} only${reason === null ? '' : `: ${reason}`}. Leave ` +
        'out markDynamic, or make the function independent of the size.',
      { input, dim: fixed, reason },
    );
  });
}

const keyOf = ({ input, dim }: SizePlace): string => `${input},${dim}`;

function byEqualSizes(inputs: readonly Tensor[], places: readonly SizePlace[]): SizePlace[][] {
  const classes = new Map<number, SizePlace[]>();
  for (const place of places) {
    const size = inputs[place.input]?.sizes[place.dim] as number;
    classes.set(size, [...(classes.get(size) ?? []), place]);
  }
  return [...classes.values()];
}

/** Multiples of the sizes, so that what divides a size divides the new one. */
const MULTIPLES = [3, 5, 7, 11, 13];

function shapesOf(
  inputs: readonly Tensor[],
  classes: readonly (readonly SizePlace[])[],
): Map<number, Shape> {
  const shapes = new Map<number, number[]>();
  classes.forEach((places, i) => {
    const multiple = (MULTIPLES[i] as number | undefined) ?? 2 * i + 5;
    for (const { input, dim } of places) {
      const shape = shapes.get(input) ?? [...(inputs[input] as Tensor).sizes];
      shape[dim] = (shape[dim] as number) * multiple;
      shapes.set(input, shape);
    }
  });
  return shapes;
}

/** Null if the function cannot be captured at these shapes. */
function captureOf(
  capture: CaptureAtShapes,
  shapes: ReadonlyMap<number, Shape>,
  facts: Sample['facts'],
): Sample | null {
  const guards = capture.guards();
  try {
    const { graph } = captureAtShapes(capture.fn, capture.args, guards, shapes);
    return { graph, outer: guards.constantTensors, facts };
  } catch {
    // Any error: the function is written for the sizes that it was called with.
    guards.restore();
    return null;
  }
}
