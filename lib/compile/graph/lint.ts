/** Checks that a graph can run. */
import { CompileError } from '../../core/errors.js';
import { checkGraph } from './check-graph.js';
import type { Graph } from './graph.js';
import type { Node, Value } from './node.js';

/**
 * Checks the order of nodes, that every value exists, and that names are unique.
 *
 * @throws CompileError that names the node, its module path and its call site; ArgumentError for
 * what is no graph
 */
export function lint(graph: Graph): void {
  checkGraph('lint', graph);
  const seen = new Set<Node>();
  const names = new Set<string>();
  const check = (value: Value, user: Node | null): void => {
    if ('number' in value) return;
    const { node, output } = value;
    const name = (): string => (user === null ? 'the result' : `node %${user.name}`);
    const origin = (): string => (user === null ? '' : originText(user));
    if (!seen.has(node))
      throw new CompileError(
        `${name()} uses %${node.name}, which does not come before it${origin()}. Move the use ` +
          'behind it, or give it another input.',
        { node: node.name },
      );
    if (output >= Math.max(1, node.metas.length))
      throw new CompileError(
        `${name()} uses output ${output} of %${node.name}, which has ` +
          `${node.metas.length}${origin()}`,
        { node: node.name, output },
      );
  };
  for (const node of graph.nodes) {
    for (const value of node.reads) check(value, node);
    if (names.has(node.name))
      throw new CompileError(`two nodes are named %${node.name}${originText(node)}`, {
        node: node.name,
      });
    names.add(node.name);
    seen.add(node);
  }
  for (const value of graph.outputs) check(value, null);
}

/** Where a node comes from, for errors. @internal */
export function originText({ origin }: Node): string {
  const parts = [
    ...(origin.path === '' ? [] : [`module ${origin.path}`]),
    ...(origin.site === '' ? [] : [origin.site]),
  ];
  return parts.length === 0 ? '' : ` (${parts.join(', ')})`;
}
