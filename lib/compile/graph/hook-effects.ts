/** How a run registers the hooks of a captured function on its own tensors. */
import { accumulatorOf } from '../../autograd/accumulate-grad.js';
import type { Node as TapeNode } from '../../autograd/node.js';
import type { AnyHook } from '../../core/backend.js';
import { CompileError } from '../../core/errors.js';
import type { Tensor } from '../../core/tensor.js';
import { map as mapTensors } from '../../core/tree.js';
import type { RunValue } from './effects.js';

/** The traced body of a hook. @internal */
export interface HookBody {
  /** Its graph: the gradients that are not null, then the tensors that it uses. */
  readonly module: { run(inputs: readonly RunValue[]): readonly RunValue[] };
  /** Which gradients the graph has. */
  readonly given: readonly boolean[];
  /** The result, with any tensors where results of the graph stand. */
  readonly result: unknown;
}

/** @internal */
export interface HookParams {
  readonly kind: 'gradient' | 'before' | 'after' | 'accumulated';
  /** Whether the node is the one that accumulates into the `.grad` of the tensor. */
  readonly ofLeaf: boolean;
  /** The hook as the program gave it; null if it was traced. */
  readonly hook: AnyHook | null;
  readonly body: HookBody | null;
}

/** A registered hook and the tensors that its body uses. @internal */
export class BoundHook {
  lifted: readonly RunValue[] = [];
}

/** What a hook of a graph runs. @internal */
export interface GraphHook {
  readonly params: HookParams;
  readonly bound: BoundHook;
}

const graphHooks = new WeakMap<object, GraphHook>();

/** The graph that a registered hook runs; undefined for a hook of the program. @internal */
export function graphHookOf(hook: object): GraphHook | undefined {
  return graphHooks.get(hook);
}

/** Registers a hook. Its body runs after `lifted` was filled, which the end of the graph does. */
export function registerHook(t: Tensor, params: HookParams): BoundHook {
  const { kind, ofLeaf, hook, body } = params;
  const bound = new BoundHook();
  const run = (hook ?? ((...args: never[]) => runBody(body as HookBody, args, bound))) as never;
  if (hook === null) graphHooks.set(run, { params, bound });
  const node = (ofLeaf ? accumulatorOf(t) : t.currentGradFn) as TapeNode;
  switch (kind) {
    case 'gradient':
      node.addTensorHook(ofLeaf ? 0 : t.outputNr, run);
      break;
    case 'before':
      node.registerPrehook(run);
      break;
    case 'after':
      node.registerHook(run);
      break;
    case 'accumulated':
      (t as Tensor & Hooked).registerPostAccumulateGradHook(run);
  }
  return bound;
}

interface Hooked {
  registerPostAccumulateGradHook(hook: (t: Tensor) => void): unknown;
}

function runBody(body: HookBody, args: readonly unknown[], bound: BoundHook): unknown {
  const flat = args.flat() as (Tensor | null)[];
  if (flat.some((t, i) => (t !== null) !== body.given[i]))
    throw new CompileError(
      'a hook of a compiled function got other gradients than at the capture: some that were ' +
        'there are missing, or the reverse. Register it outside of the compiled function.',
    );
  const results = body.module.run([...flat.filter((t) => t !== null), ...bound.lifted]);
  let next = 0;
  return mapTensors(() => results[next++], body.result);
}
