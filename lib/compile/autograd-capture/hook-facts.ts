/** The hooks of a node as part of the signature of a backward pass. */
import { AccumulateGrad } from '../../autograd/accumulate-grad.js';
import { type MadeHook, madeHookOf } from '../../autograd/made-hooks.js';
import type { Node } from '../../autograd/node.js';
import type { Tensor } from '../../core/tensor.js';
import type { RunValue } from '../graph/effects.js';
import { graphHookOf } from '../graph/hook-effects.js';

/** Gets what hooks use. */
export interface HookVisitor {
  /** A value that a hook of a compiled function uses. */
  lift(value: RunValue): void;
  /** A tensor, no leaf, that keeps its gradient. */
  retained(t: Tensor): void;
  /** A hook of the library. Returns what tells its owner and what it calls from those of others. */
  made(hook: MadeHook): unknown;
}

const NONE: readonly unknown[] = [];
const NONE_OF_LEAF: readonly object[] = [];

/**
 * The hooks in the order in which they run: by identity, those of compiled functions by their
 * graphs, and opaque ones and those of the library by what they do. The reason, if the node has
 * some that cannot be captured.
 */
export function hookFacts(node: Node, visitor: HookVisitor): readonly unknown[] | string {
  const accumulated = node instanceof AccumulateGrad ? node.accumulateHooks : NONE_OF_LEAF;
  if (!node.isSeen && accumulated.length === 0) return NONE;
  const observers = [...(node.observers?.values() ?? [])];
  if (observers.some((observer) => madeHookOf(observer) === undefined))
    return `registerMultiGradHook has a hook on a result of ${node.name} that is not opaque`;
  const traced = [...(node.tensorHooks ?? []), node.preHooks, node.postHooks];
  if (traced.some((hooks) => [...(hooks?.values() ?? [])].some((hook) => madeHookOf(hook)?.opaque)))
    return `an opaque hook of ${node.name} gets gradients`;
  for (const t of node.retained ?? []) if (t !== undefined) visitor.retained(t);
  const describe = (hooks: ReadonlyMap<number, object> | null | undefined): readonly unknown[] =>
    [...(hooks?.values() ?? [])].map((hook) => factsOf(hook, visitor));
  return [
    describe(node.observers),
    (node.tensorHooks ?? []).map(describe),
    describe(node.preHooks),
    describe(node.postHooks),
    (node.retained ?? []).map((t) => t !== undefined),
    accumulated.map((hook) => factsOf(hook, visitor)),
  ];
}

function factsOf(hook: object, visitor: HookVisitor): unknown {
  const made = madeHookOf(hook);
  if (made !== undefined) return [visitor.made(made), made.facts()];
  const graph = graphHookOf(hook);
  for (const value of graph?.bound.lifted ?? []) visitor.lift(value);
  return graph?.params ?? hook;
}
