/** The hooks of a node as part of the signature of a backward pass. */
import { type MadeHook, madeHookOf } from '../../autograd/made-hooks.js';
import type { Node } from '../../autograd/node.js';
import type { RunValue } from '../graph/effects.js';
import { graphHookOf } from '../graph/hook-effects.js';

/** Gets what hooks use. */
export interface HookVisitor {
  /** A value that a hook of a compiled function uses. */
  lift(value: RunValue): void;
  /** A hook of the library. Returns the number of its owner. */
  made(hook: MadeHook): number;
}

/**
 * The hooks in the order in which they run: by identity, those of compiled functions by their
 * graphs, and those of the library by what they do. Null if the node has some that cannot be
 * captured.
 */
export function hookFacts(node: Node, visitor: HookVisitor): readonly unknown[] | null {
  if (node.observers !== null && node.observers.size > 0) return null;
  for (const t of node.retained ?? []) if (t !== undefined) visitor.lift(t);
  const describe = (hooks: ReadonlyMap<number, object> | null | undefined): readonly unknown[] =>
    [...(hooks?.values() ?? [])].map((hook) => factsOf(hook, visitor));
  return [
    (node.tensorHooks ?? []).map(describe),
    describe(node.preHooks),
    describe(node.postHooks),
    (node.retained ?? []).map((t) => t !== undefined),
  ];
}

function factsOf(hook: object, visitor: HookVisitor): unknown {
  const made = madeHookOf(hook);
  if (made !== undefined) return [visitor.made(made), made.facts()];
  const graph = graphHookOf(hook);
  for (const value of graph?.bound.lifted ?? []) visitor.lift(value);
  return graph?.params ?? hook;
}
