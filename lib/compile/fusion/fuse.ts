/**
 * The fusion pass: pointwise calls and conversions over one space become calls of fusedPointwise,
 * whose kernel keeps the values between them out of memory. Results are those of the calls one by
 * one, bit for bit, because each is rounded to its dtype.
 */
import type { Device } from '../../core/device.js';
import { eliminateDeadCode } from '../graph/eliminate.js';
import type { Graph } from '../graph/graph.js';
import type { Node, ValueMeta } from '../graph/node.js';
import { whyNotFusedOn } from './candidates.js';
import { Groups } from './groups.js';
import { prepareParts } from './parts.js';
import { joinResidualNorms } from './residual-norms.js';
import { Rewriter } from './rewriter.js';

/** Whether nodes are on devices whose backends fuse. Asks once for each device. */
export function fusingDevices(): (node: Node) => boolean {
  const known = new Map<Device, boolean>();
  return ({ metas }) => {
    const { device } = metas[0] as ValueMeta;
    const answer = known.get(device) ?? whyNotFusedOn(device) === null;
    known.set(device, answer);
    return answer;
  };
}

/** Why the calls of a graph are not fused; null if they are, on all its devices. */
export function whyNotFused({ nodes }: Graph): string | null {
  const devices = new Set(nodes.flatMap(({ metas }) => metas.map(({ device }) => device)));
  for (const device of devices) {
    const reason = whyNotFusedOn(device);
    if (reason !== null) return reason;
  }
  return null;
}

/**
 * Fuses the pointwise calls of a graph of local ops. Calls that write into a tensor, draw random
 * numbers or have distributed operands stay, and no call moves across one that changes memory or
 * communicates.
 *
 * @param isWorth - whether a call may be fused; each may by default
 * @returns the number of fused calls, each in place of several
 */
export function fusePointwise(graph: Graph, isWorth: (node: Node) => boolean = () => true): number {
  const hasKernels = fusingDevices();
  joinResidualNorms(graph, hasKernels);
  const canFuse = (node: Node): boolean => isWorth(node) && hasKernels(node);
  prepareParts(graph, canFuse);
  const groups = new Groups(graph, canFuse);
  const count = groups.all.length;
  if (count === 0) return 0;
  new Rewriter(graph, groups).run();
  eliminateDeadCode(graph);
  return count;
}
