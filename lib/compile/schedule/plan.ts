/**
 * Plans: lowered graphs whose commands are encoded once. A run patches the memory of inputs and
 * constants and the random state, and crosses into the addon once for each segment. Between
 * segments run what is no command: effects, collectives, copies between devices, ops of programs.
 */
import { CompileError } from '../../core/errors.js';
import { Tensor } from '../../core/tensor.js';
import type { RunValue } from '../graph/effects.js';
import type { Graph } from '../graph/graph.js';
import type { Step } from '../graph/graph-module.js';
import { graphWatch } from '../graph/graph-watch.js';
import { kernelText } from '../graph/kernel-text.js';
import { lint } from '../graph/lint.js';
import { stepWatch } from '../graph/step-watch.js';
import { isOwnCollective, type PlanValues, planValues } from './plan-values.js';
import { runOneByOne, Segment } from './segment.js';
import { SegmentBuilder } from './segment-builder.js';

/** A part of a plan. */
type Part = Segment | Step;

/** What a plan consists of, for tests and reports. @internal */
export interface PlanSummary {
  /** Calls of the addon in a run. */
  readonly segments: number;
  /** Commands of all segments. */
  readonly commands: number;
  /** Calls and effects that run one by one. */
  readonly single: number;
  /** Bytes for intermediate results of the segment that needs most. */
  readonly arenaBytes: number;
}

/**
 * A lowered graph to be run many times. It computes what a GraphModule of it computes without
 * recording gradients, and raises the versions of the tensors that calls write into as that does.
 */
export class CompiledPlan {
  private readonly values: PlanValues;
  private readonly title: string;
  private parts: readonly Part[] = [];
  /** The values that are freed after each part. */
  private freed: readonly (readonly number[])[] = [];
  /** Numbers that kernels get beside the parameters of calls, as they were encoded. */
  private computed: readonly (readonly [() => number, number])[] = [];

  /** `donated`: see {@link buildPlan}. */
  constructor(graph: Graph, donated: readonly number[] = []) {
    lint(graph);
    this.title = graph.title;
    this.values = planValues(graph, donated);
    this.encode();
  }

  private encode(): void {
    const { parts, partOf } = divide(this.values);
    this.parts = parts;
    this.freed = freedAfter(this.values, parts, partOf);
    this.computed = [
      ...new Map(
        parts.flatMap((part) => (part instanceof Segment ? [...part.parts.computed] : [])),
      ),
    ];
  }

  /** What the plan consists of. */
  get summary(): PlanSummary {
    const segments = this.parts.filter((part) => part instanceof Segment);
    const native = segments.filter(({ isNative }) => isNative);
    const sum = (counts: readonly number[]): number => counts.reduce((a, b) => a + b, 0);
    return {
      segments: native.filter(({ parts }) => parts.commands.length > 0).length,
      commands: sum(native.map(({ parts }) => parts.commands.length)),
      single:
        this.parts.length -
        segments.length +
        sum(segments.filter(({ isNative }) => !isNative).map(({ parts }) => parts.steps.length)),
      arenaBytes: Math.max(0, ...native.map(({ parts }) => parts.arenaBytes)),
    };
  }

  /** What a run executes, as text. @internal */
  get kernelCode(): string {
    const { segments, commands, single } = this.summary;
    const title = this.title === '' ? 'a graph' : this.title;
    const encoded = `${counted(commands, 'command')} in ${counted(segments, 'segment')}`;
    const first = `${title}: ${encoded}, ${counted(single, 'call')} one by one`;
    return kernelText(first, this.values, this.values.updated);
  }

  /**
   * Runs the graph on one value for each placeholder. Intermediate results have no tensors; outputs
   * belong to the open scope or the garbage collector, as those of ops.
   *
   * @throws CompileError for another number of inputs; else what the ops throw
   */
  run(inputs: readonly RunValue[]): RunValue[] {
    const { placeholders, initial, results } = this.values;
    if (inputs.length !== placeholders.length)
      throw new CompileError(
        `a graph with ${placeholders.length} inputs was called with ${inputs.length}`,
        { expected: placeholders.length, given: inputs.length },
      );
    for (let i = 0; i < this.computed.length; i++) {
      const [read, before] = this.computed[i] as readonly [() => number, number];
      if (read() !== before) {
        this.encode();
        break;
      }
    }
    const values = initial.slice();
    for (let i = 0; i < placeholders.length; i++)
      values[placeholders[i] as number] = inputs[i] as RunValue;
    graphWatch.current?.(this);
    const watch = stepWatch.current;
    for (let i = 0; i < this.parts.length; i++) {
      const part = this.parts[i] as Part;
      if (watch === null) runPart(part, values);
      else watch.around(stepsOf(part), values, () => runPart(part, values));
      const freed = this.freed[i] as readonly number[];
      for (let k = 0; k < freed.length; k++)
        free(values[freed[k] as number], this.values.donated.has(freed[k] as number));
    }
    const outputs = new Array<RunValue>(results.length);
    for (let i = 0; i < outputs.length; i++) outputs[i] = values[results[i] as number] as RunValue;
    return outputs;
  }
}

const counted = (n: number, noun: string): string => `${n} ${noun}${n === 1 ? '' : 's'}`;

/**
 * Encodes a lowered graph. Later edits of the graph do not change the plan.
 *
 * `donated`: the positions of inputs that nobody needs after a run. It overwrites them and frees
 * them after their last use.
 */
export function buildPlan(graph: Graph, donated: readonly number[] = []): CompiledPlan {
  return new CompiledPlan(graph, donated);
}

function runPart(part: Part, values: RunValue[]): void {
  if (part instanceof Segment) part.run(values);
  else runOneByOne([part], values);
}

const stepsOf = (part: Part): readonly Step[] =>
  part instanceof Segment ? part.parts.steps : [part];

/** The parts, and for each step the part that it belongs to. */
function divide(values: PlanValues): { parts: Part[]; partOf: number[] } {
  const parts: Part[] = [];
  const partOf: number[] = [];
  let builder = new SegmentBuilder(values);
  let position = 0;
  const close = (): void => {
    if (builder.steps.length > 0 || builder.hasPrelude) {
      const end = position;
      parts.push(builder.build(end));
    }
    builder = new SegmentBuilder(values);
  };
  for (; position < values.steps.length; position++) {
    const step = values.steps[position] as Step;
    const add = (): boolean =>
      step.node.kind === 'effect' ? builder.addEffect(step) : builder.addCall(step);
    if (!add()) {
      close();
      if (!add()) {
        builder = new SegmentBuilder(values);
        parts.push(step);
        partOf.push(parts.length - 1);
        continue;
      }
    }
    partOf.push(parts.length);
  }
  close();
  return { parts, partOf };
}

/**
 * For each part the values whose memory nothing reads after it. Only memory of segments and of
 * collectives is freed, and only if no effect and no op of the program, which may keep it, has seen
 * it.
 */
function freedAfter(
  values: PlanValues,
  parts: readonly Part[],
  partOf: readonly number[],
): number[][] {
  const { roots, lastUses, donated } = values;
  const freed: number[][] = parts.map(() => []);
  const made = parts.flatMap((part) => madeBy(part));
  for (const value of [...donated, ...made]) {
    const last = lastUses[roots[value] as number] as number;
    if (last >= 0 && last !== Number.POSITIVE_INFINITY) freed[partOf[last] as number]?.push(value);
  }
  return freed;
}

/** A value in each memory that a part allocates and that may be freed. */
function madeBy(part: Part): number[] {
  if (!(part instanceof Segment))
    return isOwnCollective(part) ? Array.from({ length: part.outputs }, (_, i) => part.at + i) : [];
  const owners = new Map<number, number>();
  for (const { output, values: at } of part.parts.results)
    if (output >= 0 && !owners.has(output)) owners.set(output, at[0] as number);
  return [...owners.values()];
}

/** Frees memory. That of a donated value belongs to a tape that does not use it again. */
function free(value: RunValue | undefined, isDonated: boolean): void {
  if (!(value instanceof Tensor)) return;
  const { storage } = value;
  if (storage === null || storage.handle <= 0 || storage.owner !== null) return;
  if (isDonated) storage.free('backward used it up');
  else if (storage.retains === 0) storage.free('it was an intermediate result of a compiled graph');
}
