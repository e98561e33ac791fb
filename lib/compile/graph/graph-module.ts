/** Runs a graph. Its nodes become steps, in which every value is an index into one array. */
import { gradMode, setGradMode } from '../../autograd/grad-mode.js';
import { callContext, withCallSite } from '../../core/call-context.js';
import { belowDTensor, belowEntry, type Layer } from '../../core/dispatch.js';
import { CompileError } from '../../core/errors.js';
import { layers } from '../../core/hooks.js';
import { lateResultOf } from '../../core/late-results.js';
import { type DrawParams, drawsAgain } from '../../core/random.js';
import type { Tensor } from '../../core/tensor.js';
import { recomputeTags } from '../partition/tags.js';
import { copyAtSizes } from './copy.js';
import { droppedAfter } from './dropped.js';
import { type AttributeParams, effectOf, type RunValue } from './effects.js';
import type { Graph } from './graph.js';
import { graphWatch } from './graph-watch.js';
import { attributesSetBy, keptAttributes } from './kept-attributes.js';
import { kernelText } from './kernel-text.js';
import { lint } from './lint.js';
import { atSizesOf } from './lowering.js';
import type { Node, NodeOrigin, Value, ValueMeta } from './node.js';
import { type NumberedStep, type Region, regionsOf } from './regions.js';
import { stepWatch } from './step-watch.js';
import { BySizes } from './symbols.js';
import { communicates, isWait } from './traits.js';

/** A step, and what it has to do with other ranks. @internal */
export interface Step extends NumberedStep {
  /** The node in words, for errors of ranks that call others; null if it does not communicate. */
  readonly place: string | null;
  readonly isWait: boolean;
}

/**
 * The origin of the node that runs while another capture records the run, and its tags that say
 * what backward computes again; null outside.
 */
export const replayed: { origin: NodeOrigin | null; tags: ReadonlySet<string> | null } = {
  origin: null,
  tags: null,
};

/**
 * Stands for the module that a node comes from while its graph runs for another capture, which then
 * knows the modules that backward is of. @internal
 */
export class ModuleOfNode {
  readonly path: string;

  constructor(path: string) {
    this.path = path;
  }

  namedModules(): Iterable<[string, object]> {
    return [[this.path, this]];
  }
}

/** What calls of a graph run, as the graph was when it was compiled. */
interface CompiledForm {
  readonly graph: Graph;
  readonly numbered: NumberedSteps;
  readonly steps: readonly Step[];
  readonly placeholders: readonly number[];
  readonly results: readonly number[];
  readonly initial: readonly RunValue[];
  /** The regions that backward computes again, by their first steps. */
  readonly regions: ReadonlyMap<number, Region>;
  /** What a graph of local ops frees after each step; null where the tape may hold values. */
  readonly dropped: readonly (readonly number[])[] | null;
  readonly attributes: readonly AttributeParams[];
  readonly text: string;
  /** What calls of a dynamic graph run; null for a graph of fixed shapes. */
  readonly specialised: BySizes<GraphModule> | null;
}

/**
 * A graph that can be called. Edits take effect at {@link GraphModule.recompile}.
 *
 * @see PyTorch `torch.fx.GraphModule`
 */
export class GraphModule {
  private readonly layer: Layer;
  private readonly source: Graph | (() => Graph);
  private form: CompiledForm | null = null;

  /**
   * `graph`: a function is called when the module is first looked at or run. `layer`: where calls
   * enter the dispatcher; above autograd by default.
   */
  constructor(graph: Graph | (() => Graph), layer: Layer = belowEntry) {
    this.source = graph;
    this.layer = layer;
    if (typeof graph !== 'function') this.form = compiledForm(graph, layer);
  }

  /** The graph that calls run. Edits take effect at {@link recompile}. */
  get graph(): Graph {
    return this.compiled.graph;
  }

  /** The compiled form as text. */
  get code(): string {
    return this.compiled.text;
  }

  /** Whether anybody has looked at the graph or run it. @internal */
  get isUsed(): boolean {
    return this.form !== null;
  }

  private get compiled(): CompiledForm {
    const { source } = this;
    this.form ??= compiledForm(typeof source === 'function' ? source() : source, this.layer);
    return this.form;
  }

  /** What a run executes, as text. @internal */
  get kernelCode(): string {
    const { graph, numbered } = this.compiled;
    const calls = `${numbered.steps.length} calls op by op`;
    return kernelText(`${graph.title === '' ? 'a graph' : graph.title}: ${calls}`, numbered);
  }

  /**
   * Applies edits of the graph. @throws CompileError if a node uses a later one
   */
  recompile(): void {
    this.form = compiledForm(this.graph, this.layer);
  }

  /** The graph at the sizes of these inputs; itself, if its shapes are fixed. @internal */
  specialisedFor(inputs: readonly RunValue[]): GraphModule {
    const { specialised, graph } = this.compiled;
    return (
      specialised?.of(
        inputs,
        (sizes) => new GraphModule(atSizesOf(graph, copyAtSizes(graph, sizes)), this.layer),
      ) ?? this
    );
  }

  /**
   * Runs the graph on real values, one for each placeholder. Autograd records it as usual, unless
   * the graph is one of local ops. The
   * conversions of autocast are calls of the graph, so an autocast region around adds none.
   */
  forward(...inputs: readonly RunValue[]): Tensor[] {
    return this.run(inputs) as Tensor[];
  }

  /** As {@link forward}, for graphs whose inputs and results are not all tensors. @internal */
  run(inputs: readonly RunValue[]): RunValue[] {
    const { compiled } = this;
    const { placeholders } = compiled;
    if (inputs.length !== placeholders.length)
      throw new CompileError(
        `a graph with ${placeholders.length} inputs was called with ${inputs.length}`,
        { expected: placeholders.length, given: inputs.length },
      );
    if (compiled.specialised !== null) return this.specialisedFor(inputs).run(inputs);
    if (graphWatch.current !== null && layers.backend.capture === null) graphWatch.current(this);
    const values = compiled.initial.slice();
    for (let i = 0; i < placeholders.length; i++)
      values[placeholders[i] as number] = inputs[i] as RunValue;
    const restore = keptAttributes(compiled.attributes);
    try {
      this.runSteps(compiled, 0, compiled.steps.length, values);
    } catch (error) {
      restore();
      throw error;
    }
    return compiled.results.map((at) => values[at] as RunValue);
  }

  private runSteps(compiled: CompiledForm, start: number, end: number, values: RunValue[]): void {
    const { steps, regions } = compiled;
    const outer = gradMode();
    let mode = outer;
    const captures = layers.backend.capture !== null;
    const { modules } = callContext;
    const watch = stepWatch.current;
    const hasRegions = regions.size > 0 && !captures;
    const dropped = captures ? null : compiled.dropped;
    try {
      for (let i = start; i < end; i++) {
        const step = steps[i] as Step;
        const wanted = step.node.mode ?? outer;
        if (wanted !== mode) {
          setGradMode(wanted);
          mode = wanted;
        }
        if (captures) replay(step.node, modules);
        const region = hasRegions ? regions.get(i) : undefined;
        if (region !== undefined) {
          this.runRegion(compiled, i + 1, region, values);
          i = region.end - 1;
        } else if (watch === null) runStep(step, values, this.layer);
        else watch.around([step], values, () => runStep(step, values, this.layer));
        if (dropped !== null)
          for (const at of dropped[i] as readonly number[]) (values[at] as Tensor).dispose();
      }
    } finally {
      if (captures) replay(null, modules);
      setGradMode(outer);
    }
  }

  /** Runs a region by the function that runs it again in backward. That keeps the inputs only. */
  private runRegion(
    compiled: CompiledForm,
    start: number,
    region: Region,
    values: RunValue[],
  ): void {
    const { end, inputs, outputs, params } = region;
    const { initial } = compiled;
    const body = (...given: readonly unknown[]): readonly unknown[] => {
      const own = initial.slice();
      for (let i = 0; i < inputs.length; i++) own[inputs[i] as number] = given[i] as RunValue;
      this.runSteps(compiled, start, end, own);
      return outputs.map((at) => own[at]);
    };
    const given = inputs.map((at) => values[at]);
    const made = params.run(body, given, params.settings, drawsAgain());
    for (let i = 0; i < outputs.length; i++) values[outputs[i] as number] = made[i] as RunValue;
  }
}

function compiledForm(graph: Graph, layer: Layer): CompiledForm {
  lint(graph);
  const numbered = numberedSteps(graph);
  const { steps, placeholders, results, initial } = numbered;
  return {
    graph,
    numbered,
    steps,
    placeholders,
    results,
    initial,
    regions: regionsOf(steps, results, (at) => initial[at] !== null),
    dropped: layer === belowDTensor ? droppedAfter(numbered) : null,
    attributes: attributesSetBy(graph.nodes),
    text: graph.toString(),
    specialised: graph.symbols.length === 0 ? null : new BySizes(graph.symbols),
  };
}

/** Sets what a capture that records the run of a node takes over from it. */
function replay(node: Node | null, modules: readonly object[]): void {
  replayed.origin = node?.origin ?? null;
  replayed.tags = node === null ? null : recomputeTags(node.tags);
  const path = node?.origin.path ?? '';
  callContext.modules = path === '' ? modules : [new ModuleOfNode(path)];
}

/** Runs one node: an op by `layer`, or an effect. @internal */
export function runStep(step: Step, values: RunValue[], layer: Layer): void {
  const { node } = step;
  const operands = new Array<RunValue>(step.inputs.length);
  for (let i = 0; i < operands.length; i++)
    operands[i] = values[step.inputs[i] as number] as RunValue;
  if (node.op === null) {
    const effect = effectOf(node.effect as NonNullable<Node['effect']>);
    const { capture } = layers.backend;
    const result =
      capture !== null && effect.isState
        ? (capture.repeatsEffect(node.effect as string, operands, node.params) as RunValue)
        : effect.run(operands, node.params);
    if (effect.outputs === 'many')
      for (let i = 0; i < step.outputs; i++)
        values[step.at + i] = (result as readonly Tensor[])[i] as Tensor;
    else if (step.outputs > 0) values[step.at] = result as RunValue;
    return;
  }
  if (step.isWait) lateResultOf(operands[0] as Tensor)?.wait();
  const params =
    step.draw < 0 ? node.params : { ...node.params, ...(values[step.draw] as DrawParams) };
  const into = step.into < 0 ? null : (values[step.into] as Tensor);
  const { op } = node;
  const outputs =
    step.place === null
      ? layer(op, operands as Tensor[], params, into)
      : withCallSite(step.place, () => layer(op, operands as Tensor[], params, into));
  for (let i = 0; i < step.outputs; i++) values[step.at + i] = outputs[i] as Tensor;
}

/** `%allReduce of the forward graph of step, at train.ts:3:5`. */
function placeOf({ title }: Graph, node: Node): string | null {
  if (!communicates(node)) return null;
  const { site } = node.origin;
  return `%${node.name} of ${title === '' ? 'a graph' : title}${site === '' ? '' : `, at ${site}`}`;
}

function outputsOf(node: Node): number {
  const outputs = node.kind === 'effect' ? effectOf(node.effect as never).outputs : 'many';
  return outputs === 'many' ? Math.max(1, node.metas.length) : outputs;
}

/** A graph whose values have indices into one array. @internal */
export interface NumberedSteps {
  readonly steps: readonly Step[];
  /** The inputs and the results. */
  readonly placeholders: readonly number[];
  readonly results: readonly number[];
  /** The values before the first step. */
  readonly initial: readonly RunValue[];
  /** What is known of each value; null where nothing is. */
  readonly metas: readonly (ValueMeta | null)[];
  /** The names of values that are there before the first step; null for others. */
  readonly names: readonly (string | null)[];
}

/** Numbers the values of a graph. @internal */
export function numberedSteps(graph: Graph): NumberedSteps {
  const numbers = new Numbering();
  const steps: Step[] = [];
  for (const node of graph.nodes) {
    const inputs = node.inputs.map((value) => numbers.of(value));
    const into = node.into === null ? -1 : numbers.of(node.into);
    const draw = node.draw === null ? -1 : numbers.of({ node: node.draw, output: 0 });
    const at = numbers.add(node);
    if (node.kind === 'call' || node.kind === 'effect')
      steps.push({
        node,
        inputs,
        into,
        draw,
        at,
        outputs: outputsOf(node),
        place: placeOf(graph, node),
        isWait: isWait(node),
      });
  }
  const results = graph.outputs.map((value) => numbers.of(value));
  const placeholders = graph.placeholders.map((node) => numbers.of({ node, output: 0 }));
  const { initial, metas, names } = numbers;
  return { steps, placeholders, results, initial, metas, names };
}

/** Assigns an index to every value of a graph. */
class Numbering {
  readonly initial: RunValue[] = [];
  readonly metas: (ValueMeta | null)[] = [];
  readonly names: (string | null)[] = [];
  private readonly first = new Map<Node, number>();

  add(node: Node): number {
    const at = this.initial.length;
    this.first.set(node, at);
    for (let i = 0; i < outputsOf(node); i++) {
      this.initial.push(node.tensor);
      this.metas.push(node.metas[i] ?? null);
      this.names.push(node.kind === 'call' || node.kind === 'effect' ? null : node.name);
    }
    return at;
  }

  of(value: Value): number {
    if ('number' in value) {
      this.metas.push(null);
      this.names.push(String(value.number.scalarValue));
      return this.initial.push(value.number) - 1;
    }
    return (this.first.get(value.node) as number) + value.output;
  }
}
