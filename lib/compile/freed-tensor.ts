/** The error of a compiled function that uses a freed tensor. */
import { FreedError } from '../core/errors.js';
import { formatShape } from '../core/shape.js';
import { OUTLIVES_ITS_SCOPE } from '../core/storage.js';
import type { Tensor } from '../core/tensor.js';
import { tensors as tensorsIn } from '../core/tree.js';
import { siteOf } from '../core/user-stack.js';
import type { Graph } from './graph/graph.js';
import { GuardCollector } from './guards/guard-collector.js';
import type { Guards } from './guards/guards.js';

interface FreedGraph {
  readonly graph: Graph | null;
  readonly guards: Guards;
}

/** A freed tensor that a function uses beside its arguments. */
interface FreedOuter {
  readonly tensor: Tensor;
  readonly path: string;
  /** Where the function uses it; empty if that is not known. */
  readonly site: string;
}

/** The first freed tensor of a graph that runs. */
export function freedInGraph({ graph, guards }: FreedGraph): FreedOuter | null {
  const node = graph?.nodes.find(({ tensor }) => tensor !== null && isFreed(tensor));
  if (graph === null || node === undefined) return null;
  const tensor = node.tensor as Tensor;
  const site = graph.usersOf(node)[0]?.origin.site ?? '';
  return { tensor, path: guards.outerPathOf(tensor), site };
}

/** The first freed tensor of a capture that an error has ended. */
export function freedInCapture(error: unknown, collector: GuardCollector): FreedOuter | null {
  const tensor = [...collector.constantTensors].find(isFreed);
  if (tensor === undefined || !(error instanceof Error)) return null;
  return { tensor, path: collector.outerPathOf(tensor), site: siteOf(error) };
}

/**
 * The error to throw in place of `error`: one that names the freed argument, or the freed tensor
 * that the function uses beside its arguments, if that is the cause.
 */
export function freedTensor(
  error: unknown,
  name: string,
  args: readonly unknown[],
  outer: () => FreedOuter | null,
): unknown {
  if (!(error instanceof FreedError)) return error;
  const argument = tensorsIn(args).find(isFreed);
  if (argument !== undefined) {
    const path = new GuardCollector(args).pathOf(argument);
    return freedError(error, argument, path, ` of ${name}`);
  }
  const found = outer();
  if (found === null) return error;
  const { tensor, path, site } = found;
  const use = `, which ${name} uses${site === '' ? '' : ` at ${site}`},`;
  return freedError(error, tensor, path, '', use);
}

const isFreed = (t: Tensor): boolean => t.disposed || t.storage?.handle === 0;

function freedError(
  error: FreedError,
  freed: Tensor,
  path: string,
  owner: string,
  use = ',',
): FreedError {
  const reason = freed.storage?.freedBy ?? 'its memory was never allocated';
  return new FreedError(
    `compile: ${path}${owner}, ${freed.dtype.name}${formatShape(freed.sizes)}${use} was freed ` +
      `before the call (${reason}). ${OUTLIVES_ITS_SCOPE}`,
    { op: 'compile', argument: path, reason },
    { cause: error },
  );
}
