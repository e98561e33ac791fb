/**
 * Makes one dynamic graph of captures of a function at several shapes. Their graphs must be equal
 * apart from numbers, and each number that differs an expression of the sizes that differ. A size
 * that JavaScript used in another way, such as in a condition, is in no graph: so the result serves
 * a further shape only where a capture at that shape gives the same graph, which
 * {@link sameAtSizes} compares.
 */
import { isDeepStrictEqual } from 'node:util';
import { Tensor } from '../../core/tensor.js';
import { sameStructure } from '../autograd-capture/structure.js';
import { copyAtSizes, copyGraph } from '../graph/copy.js';
import type { Graph } from '../graph/graph.js';
import { formatMeta, type Node, type Value, type ValueMeta } from '../graph/node.js';
import { withoutDraw } from '../graph/same-step.js';
import { fitted, type SizeExpression } from '../graph/size-expression.js';
import {
  hasParts,
  type SizePlace,
  type SizeSymbol,
  type SymbolicFields,
  sizesIn,
  type Template,
} from '../graph/symbols.js';

/** A captured graph, which nothing changes any more. */
export interface Sample {
  readonly graph: Graph;
  /** Its constants that are tensors of the program; the capture made the others. */
  readonly outer: ReadonlySet<Tensor>;
  /** What else a backend may rely on, which no node shows: equal for all shapes of a graph. */
  readonly facts: readonly unknown[];
}

/** A dynamic graph, or the reason why there is none; neither, if no shapes of inputs differ. */
export interface Generalised {
  readonly graph: Graph | null;
  readonly reason: string | null;
}

/** Generalises graphs of two or more captures. */
export function generalise(samples: readonly Sample[]): Generalised {
  const [first, ...others] = samples as [Sample, ...Sample[]];
  if (!others.every((other) => sameFacts(first, other))) return { graph: null, reason: null };
  try {
    const symbols = symbolsOf(samples.map(({ graph }) => graph));
    if (symbols === null || symbols.length === 0) return { graph: null, reason: null };
    const sizes = samples.map(({ graph }) => sizesOfGraph(symbols, graph) as number[]);
    return { graph: new Unifier(samples, sizes).graph(symbols), reason: null };
  } catch (error) {
    if (error instanceof Disagreement) return { graph: null, reason: error.message };
    throw error;
  }
}

/** Whether a capture gave what a dynamic graph is at the same sizes. */
export function sameAtSizes(dynamic: Sample, captured: Sample): boolean {
  const { symbols } = dynamic.graph;
  const sizes = sizesOfGraph(symbols, captured.graph);
  if (sizes === null || !sameFacts(dynamic, captured)) return false;
  const specialised = { ...dynamic, graph: copyAtSizes(dynamic.graph, sizes) };
  try {
    new Unifier([specialised, captured], [[], []]).graph([]);
    return true;
  } catch (error) {
    if (error instanceof Disagreement) return false;
    throw error;
  }
}

const sameFacts = (a: Sample, b: Sample): boolean =>
  a.facts.length === b.facts.length && a.facts.every((fact, i) => sameStructure(fact, b.facts[i]));

/** Says where captures disagree. */
class Disagreement extends Error {}

function sizesOfGraph(symbols: readonly SizeSymbol[], { placeholders }: Graph): number[] | null {
  return sizesIn(symbols, (input) => placeholders[input]?.metas[0]?.shape);
}

/** Sizes of inputs that differ, those with equal sizes at every capture as one symbol. */
function symbolsOf(graphs: readonly Graph[]): SizeSymbol[] | null {
  const shapes = graphs.map(({ placeholders }) => placeholders.map((n) => n.metas[0]?.shape ?? []));
  const [first = []] = shapes;
  const places = new Map<string, SizePlace[]>();
  for (const [input, shape] of first.entries())
    for (const dim of shape.keys()) {
      const others = shapes.map((each) => each[input]?.[dim]);
      if (others.every((size) => size === others[0])) continue;
      if (shapes.some((each) => each[input]?.length !== shape.length)) return null;
      const special = others.find((size) => (size as number) < 2);
      if (special !== undefined)
        throw new Disagreement(
          `size ${dim} of input ${input} was ${special}, and sizes 0 and 1 have graphs of their ` +
            'own',
        );
      const key = others.join(',');
      places.set(key, [...(places.get(key) ?? []), { input, dim }]);
    }
  return [...places.values()].map((at, i) => ({ name: `s${i}`, places: at }));
}

/** Compares graphs node by node and finds the expressions of their numbers. */
class Unifier {
  private readonly samples: readonly Sample[];
  private readonly sizes: readonly (readonly number[])[];
  /** The nodes in the place of each node of the first graph. */
  private readonly partners = new Map<Node, readonly Node[]>();

  constructor(samples: readonly Sample[], sizes: readonly (readonly number[])[]) {
    this.samples = samples;
    this.sizes = sizes;
  }

  graph(symbols: readonly SizeSymbol[]): Graph {
    const graphs = this.samples.map((sample) => sample.graph);
    const [first, ...others] = graphs as [Graph, ...Graph[]];
    first.nodes.forEach((node, i) => {
      this.partners.set(
        node,
        others.map((graph) => {
          const other = graph.nodes[i];
          if (other === undefined) throw new Disagreement(`${placeOf(node)} is in one graph only`);
          return other;
        }),
      );
    });
    for (const { nodes } of others)
      if (nodes.length > first.nodes.length)
        throw new Disagreement(
          `${placeOf(nodes[first.nodes.length] as Node)} is in one graph only`,
        );
    const symbolic = new Map(first.nodes.map((node) => [node, this.fieldsOf(node)]));
    first.outputs.forEach((value, i) => {
      const values = graphs.map(({ outputs }) => outputs[i]);
      if (this.value(values, 'the result') !== null || value === undefined)
        throw new Disagreement('a number that is a result differs');
    });
    if (others.some(({ outputs }) => outputs.length !== first.outputs.length))
      throw new Disagreement('the number of results differs');
    return dynamicCopy(first, symbols, symbolic);
  }

  private fieldsOf(node: Node): SymbolicFields | null {
    const all = [node, ...(this.partners.get(node) as readonly Node[])];
    const at = placeOf(node);
    for (const other of all) this.checkKind(node, other);
    this.checkConstants(all);
    for (const read of [(n: Node) => n.into, drawOf]) {
      const values = all.map(read);
      if (values.some((value) => value !== null)) this.value(values.map(orMissing), at);
    }
    const inputs = this.list(
      all.map((n) => n.inputs),
      at,
      (values) => this.value(values as (Value | undefined)[], at),
    );
    const params = this.merged(
      all.map((n) => (n.draw === null ? n.params : withoutDraw(n.params))),
      `a parameter of ${at}`,
    );
    const metas = this.merged(
      all.map((n) => n.metas),
      `the shape of ${at}`,
    );
    if (params === null && metas === null && inputs === null) return null;
    const of = { params: node.params, inputs: node.inputs, metas: node.metas };
    return { params, inputs, metas, of };
  }

  private checkKind(a: Node, b: Node): void {
    const same =
      a.kind === b.kind &&
      a.op === b.op &&
      a.effect === b.effect &&
      a.mode === b.mode &&
      isDeepStrictEqual(a.tags, b.tags);
    if (!same) throw new Disagreement(`${placeOf(a)} is ${nameOf(b)} in another graph`);
    if (a.effect === 'readVersion') throw new Disagreement('the _version of a tensor was read');
  }

  /** Tensors of written values are made at each capture: their values count. */
  private checkConstants([node, ...others]: readonly Node[]): void {
    const { tensor } = node as Node;
    others.forEach((other, i) => {
      if (tensor === other.tensor) return;
      const made =
        tensor !== null &&
        other.tensor !== null &&
        !this.outer(0).has(tensor) &&
        !this.outer(i + 1).has(other.tensor) &&
        sameValues(tensor, other.tensor);
      if (!made) throw new Disagreement(`${placeOf(node as Node)} is another tensor`);
    });
  }

  private outer(sample: number): ReadonlySet<Tensor> {
    return (this.samples[sample] as Sample).outer;
  }

  /** Values must be the same outputs of partners, or numbers. */
  private value(values: readonly (Value | undefined)[], at: string): Template {
    const [first, ...others] = values;
    if (first === undefined || others.includes(undefined))
      throw new Disagreement(`the operands of ${at} differ`);
    if ('number' in first) return this.merged(values, `a number of ${at}`);
    const partners = this.partners.get(first.node) as readonly Node[];
    const same = others.every(
      (other, i) =>
        other !== undefined &&
        'node' in other &&
        other.node === partners[i] &&
        other.output === first.output,
    );
    if (!same) throw new Disagreement(`the operands of ${at} differ`);
    return null;
  }

  /** The template of a value, from the value of each sample. */
  private merged(values: readonly unknown[], at: string): Template {
    const [first, ...others] = values;
    if (others.every((other) => Object.is(other, first))) return null;
    if (values.every((value) => typeof value === 'number')) return this.number(values, at);
    if (values.every((value) => value instanceof Tensor)) return this.wrappedNumber(values, at);
    if (!values.every(hasParts)) throw new Disagreement(`${at} differs`);
    if (values.every(Array.isArray))
      return this.list(values, at, (items) => this.merged(items, at));
    if (values.some(Array.isArray)) throw new Disagreement(`${at} differs`);
    return this.fields(values as Record<string, unknown>[], at);
  }

  private number(values: readonly number[], at: string): SizeExpression {
    const found = this.sizes[0]?.length ? fitted(values, this.sizes) : null;
    if (found !== null) return found;
    throw new Disagreement(
      `${at} is ${values.join(', ')}, which does not follow from the sizes of inputs`,
    );
  }

  private wrappedNumber(values: readonly Tensor[], at: string): Template {
    const [first] = values as [Tensor];
    if (values.some((t) => t.storage !== null || t.dtype !== first.dtype))
      throw new Disagreement(`${at} differs`);
    const numbers = values.map((t) => t.scalarValue);
    const scalar = this.merged(numbers, at);
    return scalar === null ? null : new Map([['scalarValue', scalar]]);
  }

  private list(
    values: readonly (readonly unknown[])[],
    at: string,
    merge: (items: readonly unknown[]) => Template,
  ): Template {
    const [first = []] = values;
    if (values.some(({ length }) => length !== first.length))
      throw new Disagreement(`${at} has another length`);
    const items = first.map((_, i) => merge(values.map((value) => value[i])));
    return items.every((item) => item === null) ? null : items;
  }

  private fields(values: readonly Record<string, unknown>[], at: string): Template {
    const names = Object.keys(values[0] as object);
    if (values.some((value) => !isDeepStrictEqual(Object.keys(value), names)))
      throw new Disagreement(`${at} differs`);
    const fields = names.flatMap((name): [string, Template][] => {
      const template = this.merged(
        values.map((value) => value[name]),
        at,
      );
      return template === null ? [] : [[name, template]];
    });
    return fields.length === 0 ? null : new Map(fields);
  }
}

/** A copy of the graph with its symbols. */
function dynamicCopy(
  from: Graph,
  symbols: readonly SizeSymbol[],
  symbolic: ReadonlyMap<Node, SymbolicFields | null>,
): Graph {
  const { graph, nodeMap } = copyGraph(from);
  for (const [node, fields] of symbolic) (nodeMap.get(node) as Node).symbolic = fields;
  graph.symbols = symbols;
  return graph;
}

const drawOf = (node: Node): Value | null =>
  node.draw === null ? null : { node: node.draw, output: 0 };
const orMissing = (value: Value | null): Value | undefined => value ?? undefined;

/** Numbers of elements up to which values of constants are compared. */
const FEW = 4096;

function sameValues(a: Tensor, b: Tensor): boolean {
  return (
    a.dtype === b.dtype &&
    a.device === b.device &&
    a.numel() <= FEW &&
    a.numel() === b.numel() &&
    isDeepStrictEqual(a.tolist(), b.tolist())
  );
}

/** `the call view at model.ts:3:5`. */
function placeOf(node: Node): string {
  const { site } = node.origin;
  return site === '' ? nameOf(node) : `${nameOf(node)} at ${site}`;
}

function nameOf(node: Node): string {
  const { kind, metas } = node;
  const what = `${kind} ${node.op?.name ?? node.effect ?? node.name}`;
  return metas[0] === undefined ? what : `${what}, ${formatMeta(metas[0] as ValueMeta)},`;
}
