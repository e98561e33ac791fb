/** Starts communication as early as its operands are there. */
import { checkGraph } from '../../graph/check-graph.js';
import type { Graph } from '../../graph/graph.js';
import { lint } from '../../graph/lint.js';
import type { Node } from '../../graph/node.js';
import { isView, isWait, startsCommunication } from '../../graph/traits.js';
import { isInput, Precedence } from './precedence.js';

/**
 * Moves each collective of a lowered graph, with views that it reads, to directly behind what it
 * needs, so that all that follows runs beside it. Collectives keep their order, which is that of
 * all ranks. None passes a node that writes what it reads, or an effect that calls code or changes
 * state. Other nodes keep their order.
 *
 * The results live longer, however many they are: {@link reorderForOverlap} bounds that.
 *
 * @returns the number of collectives that moved
 * @throws ArgumentError for what is no graph
 * @see PyTorch `torch._inductor.comms.raise_comms`
 * @example
 * const early = aotAutograd({
 *   fwCompiler: (module) => {
 *     raiseCollectives(module.graph);
 *     sinkWaits(module.graph);
 *     module.recompile();
 *     return module.forward.bind(module);
 *   },
 * });
 * const fn = compile((t: Tensor) => t.sin(), { backend: early });
 */
export function raiseCollectives(graph: Graph): number {
  checkGraph('raiseCollectives', graph);
  const raising = new Raising(graph);
  const { nodes, raised } = raising.run();
  if (raised > 0) graph.nodes.splice(0, graph.nodes.length, ...nodes);
  lint(graph);
  return raised;
}

class Raising {
  private readonly graph: Graph;
  private readonly precedence: Precedence;
  private readonly positions: ReadonlyMap<Node, number>;
  private readonly placed = new Set<Node>();
  /** The collectives that are not placed, the next one last. */
  private readonly starts: Node[];
  /** What the next collective needs and that is not placed; views aside. */
  private awaited = new Set<Node>();
  private raised = 0;

  constructor(graph: Graph) {
    this.graph = graph;
    this.precedence = new Precedence(graph);
    this.positions = new Map(graph.nodes.map((node, i) => [node, i]));
    this.starts = graph.nodes.filter(startsCommunication).reverse();
    for (const node of graph.nodes) if (isInput(node)) this.placed.add(node);
  }

  run(): { nodes: readonly Node[]; raised: number } {
    const { graph, placed } = this;
    this.startNext(-1);
    for (const [at, node] of graph.nodes.entries()) {
      if (placed.has(node)) continue;
      placed.add(node);
      if (this.awaited.delete(node) && this.awaited.size === 0) this.startNext(at);
    }
    return { nodes: [...placed], raised: this.raised };
  }

  /** Places the collectives whose operands are there; `at`: the position that was reached. */
  private startNext(at: number): void {
    for (let next = this.starts.at(-1); next !== undefined; next = this.starts.at(-1)) {
      const { views, others } = this.missing(next);
      if (others.size > 0) {
        this.awaited = others;
        return;
      }
      for (const node of views) this.placed.add(node);
      const before = this.graph.nodes.slice(at + 1, this.positions.get(next));
      if (before.some((node) => !this.placed.has(node))) this.raised++;
      this.placed.add(next);
      this.starts.pop();
    }
  }

  /** What must still come before a node: views in their order, and what is no view. */
  private missing(node: Node): { views: Node[]; others: Set<Node> } {
    const views = new Set<Node>();
    const others = new Set<Node>();
    const pending = [node];
    for (let at = pending.pop(); at !== undefined; at = pending.pop())
      for (const before of this.precedence.before(at)) {
        if (this.placed.has(before) || views.has(before)) continue;
        if (!isView(before) || isWait(before)) others.add(before);
        else {
          views.add(before);
          pending.push(before);
        }
      }
    const order = (a: Node, b: Node): number =>
      (this.positions.get(a) as number) - (this.positions.get(b) as number);
    return { views: [...views].sort(order), others };
  }
}
