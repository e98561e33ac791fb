/**
 * The rows of a picture of a graph: nodes in the order of execution, in frames of one module each.
 * Where a graph has more nodes than can be read, neighbours share a row, and deep modules a frame.
 */
import type { Graph } from '../graph.js';
import { formatMeta, type Node } from '../node.js';
import { printValue } from '../print.js';
import { communicates, isView, isWait, writes } from '../traits.js';

/** What a row is to its reader; each has a colour. */
export type RowKind = 'input' | 'compute' | 'view' | 'write' | 'collective' | 'wait';

/** Nodes that are drawn as one line. */
export interface Row {
  readonly kind: RowKind;
  readonly nodes: readonly Node[];
  readonly name: string;
  /** What the nodes read; empty if several share the row. */
  readonly operands: string;
  /** Dtypes and shapes; empty if several share the row. */
  readonly type: string;
}

/** Rows that follow one another and belong to one module. */
export interface Frame {
  readonly path: string;
  readonly rows: readonly Row[];
}

/** More rows than these are merged. */
const MOST_ROWS = 320;
/** The least rows and the most of a graph whose modules are merged. */
const FEWEST_MERGED = 60;
const MOST_MERGED = 1000;
const MOST_INPUTS = 8;
const MOST_VIEWS = 5;

/** The frames of a graph: in full, or with as many rows as can be read. */
export function framesOf(graph: Graph): Frame[] {
  const frames = callFrames(graph.nodes.filter((node) => !isInput(node)));
  const inputs = inputRows(graph.nodes.filter(isInput));
  return inputs.length === 0 ? frames : [{ path: 'inputs', rows: inputs }, ...frames];
}

function callFrames(calls: readonly Node[]): Frame[] {
  const depth = calls.reduce((most, node) => Math.max(most, partsOf(node).length), 0);
  for (const rowsOf of [rowsOfNodes, rowsOfNeighbours]) {
    const frames = framesAt(calls, depth, rowsOf);
    if (countRows(frames) <= MOST_ROWS) return frames;
  }
  let frames = framesAt(calls, 0, rowsOfKinds);
  for (let least = 1; least <= depth && countRows(frames) < FEWEST_MERGED; least++) {
    const deeper = framesAt(calls, least, rowsOfKinds);
    if (countRows(deeper) > MOST_MERGED) break;
    frames = deeper;
  }
  return frames;
}

const partsOf = ({ origin }: Node): string[] => origin.path.split('.');

const countRows = (frames: readonly Frame[]): number =>
  frames.reduce((sum, { rows }) => sum + rows.length, 0);

const isInput = ({ kind }: Node): boolean => kind === 'placeholder' || kind === 'constant';

/** What a node is to the reader of a picture. */
export function kindOf(node: Node): RowKind {
  if (isInput(node)) return 'input';
  if (isWait(node)) return 'wait';
  if (communicates(node)) return 'collective';
  if (writes(node)) return 'write';
  return isView(node) ? 'view' : 'compute';
}

/** Frames of modules of at most this depth. What stands between two calls of one belongs to it. */
function framesAt(
  calls: readonly Node[],
  depth: number,
  rowsOf: (nodes: readonly Node[]) => readonly Row[],
): Frame[] {
  const runs: { readonly path: string; readonly nodes: Node[] }[] = [];
  for (const node of calls) {
    const path = partsOf(node).slice(0, depth).join('.');
    const [before, last] = [runs.at(-2), runs.at(-1)];
    if (last?.path === path) last.nodes.push(node);
    else if (last?.path === '' && before?.path === path && last.nodes.length === 1) {
      before.nodes.push(...last.nodes, node);
      runs.pop();
    } else runs.push({ path, nodes: [node] });
  }
  return runs.map(({ path, nodes }) => ({ path, rows: rowsOf(nodes) }));
}

const rowOfNode = (node: Node): Row => ({
  kind: kindOf(node),
  nodes: [node],
  name: node.name,
  operands: [...(node.into === null ? [] : [node.into]), ...node.inputs]
    .map((value) => printValue(value).replace('%', ''))
    .join(', '),
  type: node.metas.map(formatMeta).join(', '),
});

/** A row a node. Many views side by side, as of the gradients of a bucket, share one. */
const rowsOfNodes = (nodes: readonly Node[]): Row[] =>
  neighbours(nodes, kindOf).flatMap((group) =>
    kindOf(group[0] as Node) === 'view' && group.length > MOST_VIEWS
      ? [rowOfGroup(group)]
      : group.map(rowOfNode),
  );

/** A row for neighbours of one kind. */
const rowsOfNeighbours = (nodes: readonly Node[]): Row[] =>
  neighbours(nodes, rowKind).map(rowOfGroup);

function neighbours(nodes: readonly Node[], kind: (node: Node) => RowKind): Node[][] {
  const groups: Node[][] = [];
  for (const node of nodes) {
    const last = groups.at(-1);
    if (last !== undefined && kind(last[0] as Node) === kind(node)) last.push(node);
    else groups.push([node]);
  }
  return groups;
}

/** A row for all nodes of a kind, in the order of their first. */
const rowsOfKinds = (nodes: readonly Node[]): Row[] =>
  [...groupedBy(nodes, rowKind).values()].map(rowOfGroup);

/** Views are no work of their own beside others. */
const rowKind = (node: Node): RowKind => {
  const kind = kindOf(node);
  return kind === 'view' ? 'compute' : kind;
};

function rowOfGroup(nodes: readonly Node[]): Row {
  const [first] = nodes as readonly [Node, ...Node[]];
  if (nodes.length === 1) return rowOfNode(first);
  const counts = [...groupedBy(nodes, (node) => node.op?.name ?? node.name)]
    .sort(([, a], [, b]) => workOf(a) - workOf(b) || b.length - a.length)
    .map(([name, all]) => (all.length === 1 ? name : `${name} \u00d7${all.length}`));
  return {
    kind: nodes.every((node) => kindOf(node) === 'view') ? 'view' : rowKind(first),
    nodes,
    name: counts.join(', '),
    operands: '',
    type: '',
  };
}

/** Views come last: they are no work. */
const workOf = ([node]: readonly Node[]): number => Number(kindOf(node as Node) === 'view');

/** Elements by a property, in the order of the first of each. */
function groupedBy<T, K>(all: readonly T[], of: (element: T) => K): Map<K, T[]> {
  const groups = new Map<K, T[]>();
  for (const element of all) {
    const key = of(element);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [element]);
    else group.push(element);
  }
  return groups;
}

/** A row an input, or where they are many a row for those of one name and different numbers. */
function inputRows(inputs: readonly Node[]): Row[] {
  if (inputs.length <= MOST_INPUTS) return inputs.map(rowOfNode);
  const groups = groupedBy(inputs, ({ name }) => name.replace(/_\d+$/, ''));
  return [...groups].map(([name, nodes]) =>
    nodes.length === 1
      ? rowOfNode(nodes[0] as Node)
      : { kind: 'input', nodes, name: `${name} \u00d7${nodes.length}`, operands: '', type: '' },
  );
}
