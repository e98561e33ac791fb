/** Finds an order of nodes in which computation hides communication, one move after the other. */
import type { Node } from '../../graph/node.js';
import { isOrderedEffect, startsCommunication } from '../../graph/traits.js';
import type { Estimates, Order } from './estimates.js';
import { isInput, type Precedence } from './precedence.js';

/** Moves that save too little or need too much memory, after which a collective is left. */
const MOST_REFUSED = 16;
/** A node passes at most so many others. */
const MOST_PASSED = 1000;

/** Nodes are their positions in the order that the search begins with. */
export class OrderSearch {
  private readonly nodes: readonly Node[];
  private readonly before: readonly (readonly number[])[];
  private readonly after: readonly (readonly number[])[];
  private readonly estimates: Estimates;
  private readonly mostBytes: number;
  private order: Order;
  /** Where each node is in the order. */
  private places: Int32Array;
  private seconds = 0;
  /** How long each collective is waited for. */
  private stalls: ArrayLike<number> = [];
  private refused = 0;

  /** `mostBytes`: the most memory that an order may hold. */
  constructor(
    nodes: readonly Node[],
    precedence: Precedence,
    estimates: Estimates,
    mostBytes: number,
  ) {
    this.nodes = nodes;
    const ids = new Map(nodes.map((node, i) => [node, i]));
    const idsOf = (others: readonly Node[]): number[] => others.map((n) => ids.get(n) as number);
    this.before = nodes.map((node) => idsOf(precedence.before(node)));
    this.after = nodes.map((node) => idsOf(precedence.after(node)));
    this.estimates = estimates;
    this.mostBytes = mostBytes;
    this.order = nodes.map((_, i) => i);
    this.places = new Int32Array(nodes.length);
    this.take(this.order);
  }

  /** The order that was found. */
  run(): Node[] {
    const starts = this.order.filter((node) => this.is(node, startsCommunication));
    for (const [i, start] of starts.entries()) {
      this.refused = 0;
      this.delay(start);
      this.refused = 0;
      this.advance(start, starts[i + 1]);
    }
    return this.order.map((node) => this.nodes[node] as Node);
  }

  /** Moves nodes behind a collective that does not need them, from the nearest one on. */
  private delay(start: number): void {
    const first = Math.max(0, this.placeOf(start) - MOST_PASSED);
    const needed = this.reached(start, this.before, (place) => place >= first);
    for (let place = this.placeOf(start) - 1; place >= first && this.isOpen(start); place--) {
      const node = this.order[place] as number;
      if (this.is(node, isOrderedEffect)) return;
      if (needed.has(node) || !this.mayHide(start, [node])) continue;
      const end = this.placeOf(start);
      const moved = this.reached(node, this.after, (other) => other < end);
      if (this.mayHide(start, moved)) this.try(moved, end + 1);
    }
  }

  /**
   * Moves nodes in front of the first use of a collective that do not depend on it: first those
   * that the next collective needs.
   */
  private advance(start: number, next: number | undefined): void {
    const from = this.placeOf(start);
    const last = Math.min(this.order.length - 1, from + MOST_PASSED);
    const dependent = this.reached(start, this.after, (place) => place <= last);
    if (next !== undefined) {
      const wanted = this.reached(next, this.before, (place) => place > from);
      this.advanceThose(start, last, (node) => wanted.has(node) && !dependent.has(node));
    }
    this.advanceThose(start, last, (node) => !dependent.has(node));
  }

  private advanceThose(start: number, last: number, fits: (node: number) => boolean): void {
    const user = this.isOpen(start) ? this.firstUserOf(start) : null;
    if (user === null) return;
    for (let place = this.placeOf(user) + 1; place <= last && this.isOpen(start); place++) {
      const node = this.order[place] as number;
      if (this.is(node, isOrderedEffect)) return;
      if (!fits(node) || !this.mayHide(start, [node])) continue;
      const to = this.placeOf(user);
      const moved = this.reached(node, this.before, (other) => other > to);
      if (this.mayHide(start, moved)) this.try(moved, to);
    }
  }

  /** Whether a collective is waited for, and there is hope to change that. */
  private isOpen(start: number): boolean {
    return (this.stalls[start] as number) > 0 && this.refused < MOST_REFUSED;
  }

  /** Whether at least half of the nodes' time can be hidden. */
  private mayHide(start: number, nodes: Iterable<number>): boolean {
    const seconds = this.secondsOf(nodes);
    return seconds > 0 && seconds <= 2 * (this.stalls[start] as number);
  }

  /** Moves nodes to a place, if at least half of their time is hidden there and memory is. */
  private try(moved: ReadonlySet<number>, place: number): void {
    if ([...moved].some((node) => this.is(node, startsCommunication))) return;
    const { order, estimates } = this;
    const isFixed = (node: number): boolean => !moved.has(node);
    const trial = [
      ...order.slice(0, place).filter(isFixed),
      ...order.filter((node) => moved.has(node)),
      ...order.slice(place).filter(isFixed),
    ];
    const saved = this.seconds - estimates.seconds(trial);
    if (saved >= this.secondsOf(moved) / 2 && estimates.bytes(trial) <= this.mostBytes)
      this.take(trial);
    else this.refused++;
  }

  private take(order: Order): void {
    this.order = order;
    for (const [place, node] of order.entries()) this.places[node] = place;
    this.seconds = this.estimates.seconds(order);
    this.stalls = this.estimates.stalls(order);
  }

  /** The first node that waits for a collective; null if none does. */
  private firstUserOf(start: number): number | null {
    for (let place = this.placeOf(start) + 1; place < this.order.length; place++)
      if (this.estimates.waitsFor(this.order[place] as number, start))
        return this.order[place] as number;
    return null;
  }

  /** The nodes that one leads to by `edges`, itself included, by way of places that fit. */
  private reached(
    node: number,
    edges: readonly (readonly number[])[],
    fits: (place: number) => boolean,
  ): Set<number> {
    const found = new Set([node]);
    for (const each of found)
      for (const other of edges[each] as readonly number[])
        if (fits(this.placeOf(other)) && !this.is(other, isInput)) found.add(other);
    return found;
  }

  private is(node: number, property: (node: Node) => boolean): boolean {
    return property(this.nodes[node] as Node);
  }

  private placeOf(node: number): number {
    return this.places[node] as number;
  }

  private secondsOf(nodes: Iterable<number>): number {
    let sum = 0;
    for (const node of nodes) sum += this.estimates.secondsOf(node);
    return sum;
  }
}
