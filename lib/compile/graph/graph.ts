/** The graph of a captured function: calls of ops in execution order, and how passes edit it. */
import { CompileError } from '../../core/errors.js';
import { shown } from '../../core/options.js';
import { Node, type NodeFields, sameValue, type Value } from './node.js';
import { drawGraph } from './picture/draw.js';
import { printNode, printValue } from './print.js';
import type { SizeSymbol } from './symbols.js';

/**
 * Nodes in execution order, and the values that the function returns.
 *
 * @see PyTorch `torch.fx.Graph`
 */
export class Graph {
  /** All nodes, each after the nodes that it reads. */
  readonly nodes: Node[] = [];
  /** The graph in words, for errors: `the forward graph of step`; empty if it has no name. */
  title = '';
  /** The results. */
  outputs: Value[] = [];
  /**
   * The sizes of inputs that numbers of the graph follow from; empty for a graph of fixed shapes.
   * Numbers in nodes of a dynamic graph are those of one call.
   */
  symbols: readonly SizeSymbol[] = [];
  /** Inputs and constants that lie in one memory, in lists; others have memory of their own. */
  shared: readonly (readonly Node[])[] = [];
  private readonly names = new Map<string, number>();

  /** The calls of ops. */
  get callNodes(): Node[] {
    return this.nodes.filter((n) => n.kind === 'call');
  }

  /** The inputs, in the order of the arguments. */
  get placeholders(): Node[] {
    return this.nodes.filter((n) => n.kind === 'placeholder');
  }

  /** Adds a node; its name gets a number if another node has it. Without `before`, at the end. */
  add(fields: NodeFields, before: Node | null = null): Node {
    const node = new Node({ ...fields, name: this.freeName(fields.name) });
    this.nodes.splice(before === null ? this.nodes.length : this.indexOf(before), 0, node);
    return node;
  }

  /** Removes a node. @throws CompileError if its value is used */
  erase(node: Node): void {
    const at = this.indexOf(node);
    const users = this.usersOf(node);
    if (users.length > 0 || this.outputs.some((v) => 'node' in v && v.node === node))
      throw new CompileError(
        `erase: expected a node that nothing uses, got %${node.name}, which ` +
          `${users.length > 0 ? users.map((n) => `%${n.name}`).join(', ') : 'the result'} uses. ` +
          'Replace its uses first: replaceUses(value, other).',
        { node: node.name },
      );
    this.nodes.splice(at, 1);
  }

  /** Moves a node in front of another. {@link lint} finds orders that cannot run. */
  moveBefore(node: Node, other: Node): void {
    if (node === other) return;
    this.nodes.splice(this.indexOf(node), 1);
    this.nodes.splice(this.indexOf(other), 0, node);
  }

  /**
   * Makes all uses of a value, also as a result, uses of another. A node stands for its only
   * output.
   *
   * @throws CompileError for a node of several outputs or none, and for what is neither value nor
   * node
   */
  replaceUses(value: Value | Node, by: Value | Node, except: Node | null = null): void {
    const [old, other] = [valueOf(value), valueOf(by)];
    const replaced = (used: Value): Value => (sameValue(used, old) ? other : used);
    for (const node of this.nodes) {
      if (node === except) continue;
      node.inputs = node.inputs.map(replaced);
      if (node.into !== null) node.into = replaced(node.into);
    }
    this.outputs = this.outputs.map(replaced);
  }

  /** The nodes that read any output of a node, in order. */
  usersOf(node: Node): Node[] {
    return this.nodes.filter((n) => n.reads.some((v) => 'node' in v && v.node === node));
  }

  /** The users of every node, found in one pass over the graph. */
  allUsers(): Map<Node, Node[]> {
    const users = new Map<Node, Node[]>(this.nodes.map((n) => [n, []]));
    for (const node of this.nodes)
      for (const value of node.reads) {
        if (!('node' in value)) continue;
        const list = users.get(value.node);
        if (list !== undefined && list.at(-1) !== node) list.push(node);
      }
    return users;
  }

  /** @throws CompileError for a node of another graph */
  private indexOf(node: Node): number {
    const at = this.nodes.indexOf(node);
    if (at < 0)
      throw new CompileError(
        `expected a node of this graph, got %${node.name}, which is not in it`,
        {
          node: node.name,
        },
      );
    return at;
  }

  private freeName(base: string): string {
    const count = this.names.get(base) ?? 0;
    this.names.set(base, count + 1);
    return count === 0 ? base : `${base}_${count}`;
  }

  /** Takes a name, so that no new node gets it. @internal */
  reserveName(name: string): void {
    const at = numberAt(name);
    const base = at < 0 ? name : name.slice(0, at);
    const next = at < 0 ? 1 : Number(name.slice(at + 1)) + 1;
    this.names.set(base, Math.max(this.names.get(base) ?? 0, next));
    if (at >= 0) this.names.set(name, Math.max(this.names.get(name) ?? 0, 1));
  }

  /** The graph as text, one line for each node. */
  toString(): string {
    return [...this.nodes.map(printNode), `return ${this.outputs.map(printValue).join(', ')}`].join(
      '\n',
    );
  }

  /**
   * The graph as a picture, in SVG: nodes from top to bottom in the order in which they run, in
   * frames of one module each; lines from values to the nodes that read them; beside them a lane of
   * collectives, each with a bar until its wait. A pointer on a node shows its line of text, its
   * placements and its place in the program. Where a graph has more than 320 rows, neighbours share
   * one, and above that all nodes of one kind of a module.
   */
  toSvg(): string {
    return drawGraph(this, this.title);
  }
}

/** Where the number of a name such as `mul_3` begins, with its underscore; -1 without a number. */
function numberAt(name: string): number {
  let at = name.length - 1;
  while (at > 0 && isDigit(name.charCodeAt(at))) at--;
  return at < name.length - 1 && name[at] === '_' ? at : -1;
}

const isDigit = (code: number): boolean => code >= 48 && code <= 57;

/** @throws CompileError for what stands for no value */
function valueOf(given: Value | Node): Value {
  const isNode = given instanceof Node;
  if (isNode && given.metas.length === 1) return { node: given, output: 0 };
  if (!isNode && isValue(given)) return given;
  const got = isNode ? `%${given.name}, which has ${given.metas.length}` : shown(given);
  throw new CompileError(
    `replaceUses: expected a value, { node, output }, or a node with one output, got ${got}`,
  );
}

const isValue = (given: unknown): given is Value =>
  typeof given === 'object' && given !== null && ('number' in given || 'node' in given);
