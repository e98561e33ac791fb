/** The graph of one iteration, parts of which may run in the next one. */
import { checkGraph } from '../compile/graph/check-graph.js';
import { appendCopy, copyOfValue } from '../compile/graph/copy.js';
import { Graph } from '../compile/graph/graph.js';
import type { Node, Value } from '../compile/graph/node.js';
import { isRandom } from '../compile/graph/traits.js';
import { CompileError } from '../core/errors.js';

/**
 * A graph whose nodes can be moved to the next iteration. Passes edit the graph of one iteration;
 * those of the first, the last and all other iterations follow from it when it is compiled.
 *
 * @see PyTorch `torch.distributed._spmd.iter_graph_module.IterGraph`
 */
export class IterGraph extends Graph {
  /** What runs in the next iteration, and the node of it that each moved node comes before. */
  readonly moved = new Map<Node, Node>();
  private isFrozen = false;

  /** A copy of a graph. @throws ArgumentError unless it is one */
  constructor(from: Graph) {
    super();
    checkGraph('IterGraph', from, 'from');
    const copies = new Map<Node, Node>();
    for (const node of from.nodes) appendCopy(this, node, copies);
    this.title = from.title;
    this.outputs = from.outputs.map((value) => copyOfValue(value, copies));
  }

  /** Adds a node in front of another one, as `add` does. */
  nodePrepend(target: Node, node: Node): void {
    this.moveBefore(node, target);
  }

  /** Moves a node behind another one. */
  nodeAppend(target: Node, node: Node): void {
    this.moveAfter(node, target);
  }

  /** Moves a node behind another one. */
  moveAfter(node: Node, other: Node): void {
    const next = this.nodes[this.nodes.indexOf(other) + 1];
    if (next === undefined) {
      this.moveBefore(node, other);
      this.moveBefore(other, node);
    } else if (next !== node) this.moveBefore(node, next);
  }

  /** Gives a node other inputs. */
  nodeSetInputs(node: Node, inputs: readonly Value[]): void {
    node.inputs = [...inputs];
  }

  /** Makes all uses of a node's first output uses of another value. */
  nodeReplaceAllUsesWith(node: Node, by: Value): void {
    this.replaceUses({ node, output: 0 }, by);
  }

  /**
   * Makes nodes run in the next iteration, before a node of it: one for all of them, or the one
   * that a function returns for each. Those before one node keep their order. What they read from
   * other nodes is kept until then.
   *
   * @throws CompileError if a node outside of them uses their values, if one is random or has been
   * moved, and after {@link freezeCrossIterMovement}
   */
  moveToNextIterBefore(nodes: readonly Node[], target: Node | ((node: Node) => Node)): void {
    const targets = new Map(
      nodes.map((node) => [node, typeof target === 'function' ? target(node) : target]),
    );
    if (this.isFrozen) throw refused('the graph is frozen: move nodes before finalizeSetup()');
    if (targets.size === 0) throw refused('expected at least one node to move');
    for (const each of new Set(targets.values()))
      if (targets.has(each)) throw refused(`the target %${each.name} is one of the moved nodes`);
    for (const node of [...targets.keys(), ...targets.values()])
      if (!this.nodes.includes(node)) throw refused(`%${node.name} is not in the graph`);
    for (const node of targets.keys()) this.checkMovable(node, targets);
    for (const [node, each] of targets) this.moved.set(node, each);
  }

  /** Ends moves between iterations. */
  freezeCrossIterMovement(): void {
    this.isFrozen = true;
  }

  private checkMovable(node: Node, moved: ReadonlyMap<Node, Node>): void {
    if (this.moved.has(node) || [...this.moved.values()].includes(node))
      throw refused(`%${node.name} has been moved, or is the target of a move`);
    if (node.kind === 'placeholder' || node.kind === 'constant' || isRandom(node))
      throw refused(`%${node.name} is an input, a constant or random`);
    const user = this.usersOf(node).find((each) => !moved.has(each));
    if (user !== undefined)
      throw refused(
        `%${user.name} uses %${node.name} in the same iteration. Move it, too, as ` +
          'findAllDescendants(gm, nodes) finds it',
      );
    if (this.outputs.some((value) => 'node' in value && value.node === node))
      throw refused(`%${node.name} is a result of the iteration`);
  }
}

const refused = (what: string): CompileError =>
  new CompileError(`moveToNextIterBefore: ${what}.`, { op: 'moveToNextIterBefore' });
