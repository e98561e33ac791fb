/** Which nodes of a graph depend on which: by values, and by memory that nodes write. */

import { Memory, writtenValues } from '../partition/memory.js';
import type { NodeValue } from '../partition/value-map.js';
import type { Graph } from './graph.js';
import type { Node, Value } from './node.js';
import { writes } from './traits.js';

/** The inputs whose memory a node fills or frees, as it does with no other memory. */
function managedInputs({ op, effect, params, inputs }: Node): NodeValue[] {
  const at = effect === 'callOpaque' ? [...inputs.keys()] : (op?.manages?.(params) ?? []);
  return at.flatMap((i) => {
    const value = inputs[i] as Value;
    return 'node' in value ? value : [];
  });
}

/** The values that a node changes, in memory that it does not manage. */
const changedValues = (node: Node): NodeValue[] =>
  writes(node) && node.effect !== 'callOpaque' ? writtenValues(node) : [];

const isComputed = (value: Value): value is NodeValue => 'node' in value;

/** The memory that a node reads and that it writes. */
interface Uses {
  readonly read: ReadonlySet<object>;
  readonly written: ReadonlySet<object>;
}

/** Two nodes that may not change places, and the value in whose memory they meet. */
export interface Conflict {
  readonly first: Node;
  readonly second: Node;
  readonly value: NodeValue;
  /** Whether the first one writes, and whether the second one does. */
  readonly firstWrites: boolean;
  readonly secondWrites: boolean;
}

/** The dependencies of a graph as it is now: edits need a new one. */
export class Dependencies {
  private readonly graph: Graph;
  private readonly memory: Memory;
  private readonly positions: ReadonlyMap<Node, number>;
  private readonly users: ReadonlyMap<Node, readonly Node[]>;
  private readonly uses = new Map<Node, Uses>();
  /** Memory on which ops that manage it return windows, by that of these. */
  private readonly managed = new Map<object, object>();
  /** A value that shows each memory: the first one. */
  private readonly shown = new Map<object, NodeValue>();

  constructor(graph: Graph) {
    this.graph = graph;
    this.memory = new Memory(graph);
    this.positions = new Map(graph.nodes.map((node, i) => [node, i]));
    this.users = graph.allUsers();
    for (const node of graph.nodes) this.addWindows(node);
    for (const node of graph.nodes) this.uses.set(node, this.usesOf(node));
  }

  /** The position of a node. */
  readonly positionOf = (node: Node): number => this.positions.get(node) ?? -1;

  /** The memory that a value is in: the same object for all values that may share it. */
  memoryOf(value: NodeValue): object {
    const memory = this.memory.of(value);
    return this.managed.get(memory) ?? memory;
  }

  /** The results of an op that manages memory may lie there. */
  private addWindows(node: Node): void {
    const [first] = managedInputs(node);
    if (first === undefined) return;
    const memory = this.memoryOf(first);
    for (let output = 0; output < node.metas.length; output++)
      this.managed.set(this.memory.of({ node, output }), memory);
  }

  /** The nodes that read a value of a node, or memory that the node writes, after it. */
  readonly readers = (node: Node): Node[] => {
    const direct = this.users.get(node) ?? [];
    const { written } = this.uses.get(node) as Uses;
    if (written.size === 0) return [...direct];
    const later = this.graph.nodes.slice(this.positionOf(node) + 1);
    return [...direct, ...later.filter((other) => meets(written, this.readBy(other)))];
  };

  /** Why `first` has to stay before `second`; null if their order does not matter. */
  conflict(first: Node, second: Node): Conflict | null {
    const [a, b] = [this.uses.get(first) as Uses, this.uses.get(second) as Uses];
    const at =
      common(a.written, b.written) ?? common(a.written, b.read) ?? common(a.read, b.written);
    if (at === null) return null;
    return {
      first,
      second,
      value: this.shown.get(at) as NodeValue,
      firstWrites: a.written.has(at),
      secondWrites: b.written.has(at),
    };
  }

  /** The memory that a node writes. */
  writtenBy(node: Node): ReadonlySet<object> {
    return (this.uses.get(node) as Uses).written;
  }

  /** The memory that a node writes and does not manage. */
  changedBy(node: Node): object[] {
    return changedValues(node).map((value) => this.memoryOf(value));
  }

  /** The memory whose values a node reads; a view reads none. */
  readBy(node: Node): ReadonlySet<object> {
    return (this.uses.get(node) as Uses).read;
  }

  private usesOf(node: Node): Uses {
    const memoryOf = (values: readonly Value[]): Set<object> =>
      new Set(
        values.filter(isComputed).map((value) => {
          const memory = this.memoryOf(value);
          if (!this.shown.has(memory)) this.shown.set(memory, value);
          return memory;
        }),
      );
    const isWindow = node.op !== null && node.op.view !== null && node.into === null;
    return {
      read: isWindow ? new Set() : memoryOf(node.reads),
      written: memoryOf([...changedValues(node), ...managedInputs(node)]),
    };
  }
}

function common(a: ReadonlySet<object>, b: ReadonlySet<object>): object | null {
  for (const memory of a) if (b.has(memory)) return memory;
  return null;
}

const meets = (a: ReadonlySet<object>, b: ReadonlySet<object>): boolean => common(a, b) !== null;
