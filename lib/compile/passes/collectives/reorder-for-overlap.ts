/** Puts computation beside communication: the pass, what it is given and what it decides by. */
import { checkNumber, optionsOf, unexpected } from '../../../core/options.js';
import { type Rates, type RatesName, ratesNameOf, ratesOf } from '../../estimate/rates.js';
import { Graph } from '../../graph/graph.js';
import type { Node } from '../../graph/node.js';
import { startsCommunication } from '../../graph/traits.js';
import { Estimates, type Order } from './estimates.js';
import { OrderSearch } from './order-search.js';
import { Precedence } from './precedence.js';
import { sinkWaits } from './sink-waits.js';

/** Options of {@link reorderForOverlap}. */
export interface OverlapOptions {
  /**
   * A table of rates, or the name of a known one, by which times are estimated; by default that of
   * the graph's device. All ranks must have the same.
   */
  readonly rates?: RatesName | Rates;
  /**
   * The bytes by which the new order may hold more memory than the given one: by default a fiftieth
   * of what that holds, and at least 1 MiB.
   */
  readonly allowanceBytes?: number;
  /** The positions of inputs that are freed after their last use; by default none. */
  readonly donated?: readonly number[];
  /** The part of the estimated time that a new order must save to be taken; 0 by default. */
  readonly leastGain?: number;
}

const ALLOWANCE = 0.02;
const LEAST_ALLOWANCE = 2 ** 20;

/**
 * Reorders a lowered graph so that computation runs beside communication. By estimated times, each
 * collective gets nodes behind it: first those before it that it does not need, then those behind
 * its wait that do not need it, of which what the next collective needs goes first, and then what
 * is used soonest. A node moves only if at least half of its time is hidden, and only as long as
 * the graph never holds more memory than in the given order and the allowance. Waits come directly
 * before the first use.
 *
 * Collectives keep their order. Nothing passes an effect that calls code or changes state, nor a
 * write to what it reads; draws of random numbers keep their order. Ranks with shards of different
 * sizes estimate those of the largest one, and so find the same order.
 *
 * @returns whether the order has changed
 * @throws ArgumentError for what is no graph, and for other options
 * @see PyTorch `torch._inductor.comms.reorder_compute_for_overlap`
 * @example
 * const overlapped = aotAutograd({
 *   fwCompiler: (module) => {
 *     reorderForOverlap(module.graph, { rates: 'h200' });
 *     module.recompile();
 *     return module.forward.bind(module);
 *   },
 * });
 * const fn = compile((t: Tensor) => t.sin(), { backend: overlapped });
 */
export function reorderForOverlap(graph: Graph, options: OverlapOptions = {}): boolean {
  const { rates, allowanceBytes, donated, leastGain } = checkedOptions(graph, options);
  const given = [...graph.nodes];
  if (!given.some(startsCommunication)) return false;
  sinkWaits(graph);
  const estimates = new Estimates(graph, rates, donated);
  const sunk = [...graph.nodes];
  const orderOf = (nodes: readonly Node[]): Order => {
    const positions = new Map(sunk.map((node, i) => [node, i]));
    return nodes.map((node) => positions.get(node) as number);
  };
  const before = orderOf(given);
  const bytes = estimates.bytes(before);
  const mostBytes = bytes + (allowanceBytes ?? Math.max(LEAST_ALLOWANCE, bytes * ALLOWANCE));
  setOrder(graph, new OrderSearch(sunk, new Precedence(graph), estimates, mostBytes).run());
  sinkWaits(graph);
  const after = orderOf(graph.nodes);
  const isBetter =
    estimates.seconds(after) <= estimates.seconds(before) * (1 - leastGain) &&
    estimates.bytes(after) <= mostBytes;
  if (!isBetter) setOrder(graph, given);
  return graph.nodes.some((node, i) => node !== given[i]);
}

function setOrder(graph: Graph, nodes: readonly Node[]): void {
  graph.nodes.splice(0, graph.nodes.length, ...nodes);
}

/** @throws ArgumentError for what is no graph, and for other options */
function checkedOptions(
  graph: Graph,
  options: OverlapOptions,
): Omit<Required<OverlapOptions>, 'rates' | 'allowanceBytes'> & {
  readonly rates: Rates;
  readonly allowanceBytes: number | null;
} {
  const op = 'reorderForOverlap';
  if (!(graph instanceof Graph)) throw unexpected(op, 'graph', 'a graph', graph);
  const {
    rates = ratesNameOf(graph),
    allowanceBytes = null,
    donated = [],
    leastGain = 0,
  } = optionsOf(op, options, 'rates allowanceBytes donated leastGain');
  if (allowanceBytes !== null) checkNumber(op, 'allowanceBytes', allowanceBytes, { from: 0 });
  checkNumber(op, 'leastGain', leastGain, { from: 0, to: 1 });
  if (!Array.isArray(donated)) throw unexpected(op, 'donated', 'positions of inputs', donated);
  const { length } = graph.placeholders;
  for (const i of donated) checkNumber(op, 'donated', i, { from: 0, to: length - 1, whole: true });
  return { rates: ratesOf(op, rates), allowanceBytes, donated, leastGain };
}
