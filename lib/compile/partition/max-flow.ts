/** Maximum flow and minimum cut of a network, by Dinic's algorithm. */

/** A network of vertices, numbered from 0, and of edges with capacities. @internal */
export class FlowNetwork {
  /** The edges of each vertex. Edge `e ^ 1` is the reverse of edge `e`. */
  private readonly edges: number[][] = [];
  private readonly heads: number[] = [];
  private readonly capacities: number[] = [];

  /** Adds a vertex and returns its number. */
  addVertex(): number {
    return this.edges.push([]) - 1;
  }

  /** Adds an edge. The capacity may be Infinity. */
  addEdge(from: number, to: number, capacity: number): void {
    (this.edges[from] as number[]).push(this.heads.length);
    this.heads.push(to);
    this.capacities.push(capacity);
    (this.edges[to] as number[]).push(this.heads.length);
    this.heads.push(from);
    this.capacities.push(0);
  }

  /**
   * Sends as much flow as possible and returns it, with the vertices on the source's side of the
   * minimum cut that is closest to the source. The flow is Infinity if a path has no finite edge.
   * A network can be solved once.
   *
   * @see Dinic, "Algorithm for solution of a problem of maximum flow in networks", 1970
   */
  minCut(source: number, sink: number): { flow: number; sourceSide: readonly boolean[] } {
    let flow = 0;
    for (;;) {
      const levels = this.levelsFrom(source);
      if (levels[sink] === -1) return { flow, sourceSide: levels.map((level) => level >= 0) };
      flow += this.blockingFlow(source, sink, levels);
      if (flow === Number.POSITIVE_INFINITY)
        return { flow, sourceSide: levels.map((level) => level >= 0) };
    }
  }

  /** The distance of each vertex from the source over edges with capacity left; -1: unreachable. */
  private levelsFrom(source: number): number[] {
    const levels = new Array<number>(this.edges.length).fill(-1);
    levels[source] = 0;
    const queue = [source];
    for (let i = 0; i < queue.length; i++) {
      const at = queue[i] as number;
      for (const edge of this.edges[at] as number[]) {
        const to = this.heads[edge] as number;
        if (this.left(edge) === 0 || levels[to] !== -1) continue;
        levels[to] = (levels[at] as number) + 1;
        queue.push(to);
      }
    }
    return levels;
  }

  /** Fills paths along rising levels until each has a full edge. */
  private blockingFlow(source: number, sink: number, levels: readonly number[]): number {
    const next = new Array<number>(this.edges.length).fill(0);
    const path: number[] = [];
    let sum = 0;
    for (let at = source; ; ) {
      if (at === sink) {
        const amount = this.fill(path);
        sum += amount;
        if (amount === Number.POSITIVE_INFINITY) return sum;
        at = this.backToFull(path, source);
        continue;
      }
      const edge = this.nextEdge(at, levels, next);
      if (edge >= 0) {
        path.push(edge);
        at = this.heads[edge] as number;
      } else {
        const back = path.pop();
        if (back === undefined) return sum;
        at = this.heads[back ^ 1] as number;
        next[at] = (next[at] as number) + 1;
      }
    }
  }

  /** The next edge of a vertex that may lead to the sink; -1 if all were tried. */
  private nextEdge(at: number, levels: readonly number[], next: number[]): number {
    const edges = this.edges[at] as number[];
    const deeper = (levels[at] as number) + 1;
    for (let i = next[at] as number; i < edges.length; i++) {
      const edge = edges[i] as number;
      next[at] = i;
      if (this.left(edge) > 0 && levels[this.heads[edge] as number] === deeper) return edge;
    }
    next[at] = edges.length;
    return -1;
  }

  private fill(path: readonly number[]): number {
    let amount = Number.POSITIVE_INFINITY;
    for (const edge of path) amount = Math.min(amount, this.left(edge));
    if (amount === Number.POSITIVE_INFINITY) return amount;
    for (const edge of path) {
      this.capacities[edge] = this.left(edge) - amount;
      this.capacities[edge ^ 1] = this.left(edge ^ 1) + amount;
    }
    return amount;
  }

  /** Shortens a path to before its first full edge, and returns its new end. */
  private backToFull(path: number[], source: number): number {
    path.length = path.findIndex((edge) => this.left(edge) === 0);
    const last = path.at(-1);
    return last === undefined ? source : (this.heads[last] as number);
  }

  private left(edge: number): number {
    return this.capacities[edge] as number;
  }
}
