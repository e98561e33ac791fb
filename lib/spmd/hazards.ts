/** What would be wrong if nodes ran in the next iteration. */

import { type Conflict, Dependencies } from '../compile/graph/dependencies.js';
import { originText } from '../compile/graph/lint.js';
import type { Node } from '../compile/graph/node.js';
import type { NodeValue } from '../compile/partition/value-map.js';
import { CompileError } from '../core/errors.js';
import type { IterGraph } from './iter-graph.js';

/**
 * Checks that each moved node finds and leaves memory as if it had run in its own iteration:
 * nothing between its old place and its new one reads what it writes, or writes what it reads.
 *
 * @param inputs - the placeholders that are the same tensor in all iterations
 * @param nameOf - the name of the tensor that a placeholder stands for
 * @throws CompileError that names the tensor, the read and the write
 */
export function checkHazards(
  graph: IterGraph,
  inputs: ReadonlySet<Node>,
  nameOf: (placeholder: Node) => string,
): void {
  if (graph.moved.size === 0) return;
  const dependencies = new Dependencies(graph);
  const lasting = new Map<object, Node>();
  for (const node of graph.nodes)
    if (node.kind === 'placeholder' || node.kind === 'constant')
      lasting.set(dependencies.memoryOf({ node, output: 0 }), node);
  for (const [moved, target] of graph.moved) {
    checkOperands(graph, dependencies, moved, target);
    for (const memory of dependencies.writtenBy(moved)) {
      const holder = lasting.get(memory);
      if (holder !== undefined && !inputs.has(holder)) throw anotherArgument(moved, nameOf(holder));
    }
    for (const other of graph.nodes) {
      const place = placeOf(graph, dependencies, moved, other);
      if (place === null) continue;
      const found = dependencies.conflict(...orderOf(dependencies, moved, other));
      if (found === null) continue;
      const holder = lasting.get(dependencies.memoryOf(found.value));
      // Memory that an iteration makes is another one in the next.
      if (holder === undefined && place === 'next') continue;
      throw hazard(found, moved, other, target, holder && nameOf(holder));
    }
  }
}

/** @throws CompileError if a moved node comes before another one whose value it uses */
function checkOperands(
  graph: IterGraph,
  dependencies: Dependencies,
  moved: Node,
  target: Node,
): void {
  for (const value of moved.reads) {
    const other = 'node' in value ? graph.moved.get(value.node) : undefined;
    if (other === undefined || dependencies.positionOf(other) <= dependencies.positionOf(target))
      continue;
    const { name } = (value as NodeValue).node;
    throw new CompileError(
      `recompile: %${moved.name} was moved before %${target.name}, and %${name}, whose value it ` +
        `uses, before %${other.name}, which is later. Move %${name} before it.`,
      { moved: moved.name, other: name },
    );
  }
}

const anotherArgument = ({ name }: Node, tensor: string): CompileError =>
  new CompileError(
    `recompile: %${name}, which writes ${tensor}, was moved to the next iteration, whose ` +
      'argument is another tensor. Leave it in its iteration, or make the tensor a buffer of a module.',
    { moved: name, tensor },
  );

const orderOf = (dependencies: Dependencies, a: Node, b: Node): [Node, Node] =>
  dependencies.positionOf(a) < dependencies.positionOf(b) ? [a, b] : [b, a];

/**
 * Whether a moved node passes another one: in its own iteration, in the next one, or not at all.
 */
function placeOf(
  { moved: targets }: IterGraph,
  dependencies: Dependencies,
  moved: Node,
  other: Node,
): 'own' | 'next' | null {
  if (other === moved || other.kind === 'placeholder' || other.kind === 'constant') return null;
  const at = (node: Node): number => dependencies.positionOf(node);
  const target = targets.get(moved) as Node;
  const also = targets.get(other);
  if (also !== undefined) {
    const isOrdered = at(moved) < at(other) === at(target) < at(also);
    return isOrdered || also === target ? null : 'own';
  }
  if (at(other) > at(moved)) return 'own';
  return at(other) < at(target) ? 'next' : null;
}

function hazard(
  { firstWrites, secondWrites, first }: Conflict,
  moved: Node,
  other: Node,
  target: Node,
  tensor: string | undefined,
): CompileError {
  const verb = (node: Node): string =>
    (node === first ? firstWrites : secondWrites) ? 'writes' : 'reads';
  const what = tensor ?? 'memory of the iteration';
  const effect = verb(other) === 'reads' ? 'read an old value' : 'change what is read';
  return new CompileError(
    `recompile: %${moved.name}, which ${verb(moved)} ${what}, was moved to the next iteration ` +
      `before %${target.name}, and %${other.name}${originText(other)} ${verb(other)} ${what} ` +
      `before that. It would ${effect}. Move it before %${other.name}, or move fewer nodes.`,
    { moved: moved.name, other: other.name, tensor: what },
  );
}
