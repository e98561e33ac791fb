/** Regions of a graph that backward computes again, when the graph runs op by op. */
import { regionTag } from '../partition/tags.js';
import type { Node } from './node.js';

type Body = (...inputs: readonly unknown[]) => readonly unknown[];

/** The effect at the start of a region: `run` runs its nodes, and again in backward. @internal */
export interface RegionParams {
  readonly region: number;
  readonly run: (
    body: Body,
    inputs: readonly unknown[],
    settings: unknown,
    again: <T>(fn: () => T) => T,
  ) => readonly unknown[];
  readonly settings: unknown;
}

/**
 * A node with the indices of its values. Plain numbers and constants have their values from the
 * start. @internal
 */
export interface NumberedStep {
  readonly node: Node;
  readonly inputs: readonly number[];
  /** The tensor that the call writes into, or -1. */
  readonly into: number;
  /** The random state of the call, or -1. */
  readonly draw: number;
  /** The node's first output. */
  readonly at: number;
  readonly outputs: number;
}

/** The steps of a region, from the one behind its start. @internal */
export interface Region {
  readonly params: RegionParams;
  /** The index of the first step behind the region. */
  readonly end: number;
  /** The values that the region reads and does not make, and those that others read of it. */
  readonly inputs: readonly number[];
  readonly outputs: readonly number[];
}

/**
 * The regions of a graph, by the indices of their first steps. A region whose steps a pass has
 * moved apart is none: its steps run once, and autograd saves what they compute.
 *
 * @internal
 */
export function regionsOf(
  steps: readonly NumberedStep[],
  results: readonly number[],
  isKnown: (value: number) => boolean,
): ReadonlyMap<number, Region> {
  const regions = new Map<number, Region>();
  steps.forEach(({ node }, start) => {
    if (node.effect !== 'recompute') return;
    const params = node.params as RegionParams;
    const tag = regionTag(params.region);
    let end = start + 1;
    while (end < steps.length && (steps[end] as NumberedStep).node.tags.has(tag)) end++;
    if (steps.slice(end).some((step) => step.node.tags.has(tag))) return;
    const own = steps.slice(start + 1, end);
    const made = new Set(own.flatMap(valuesOf));
    const readBehind = new Set([...steps.slice(end).flatMap(readsOf), ...results]);
    const inputs = new Set(own.flatMap(readsOf).filter((at) => !made.has(at) && !isKnown(at)));
    const outputs = [...made].filter((at) => readBehind.has(at));
    regions.set(start, { params, end, inputs: [...inputs], outputs });
  });
  return regions;
}

function valuesOf({ at, outputs }: NumberedStep): number[] {
  return Array.from({ length: outputs }, (_, i) => at + i);
}

const readsOf = ({ inputs, into, draw }: NumberedStep): number[] =>
  [...inputs, into, draw].filter((at) => at >= 0);
