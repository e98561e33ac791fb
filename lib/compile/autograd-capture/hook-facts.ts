/** The hooks of a node as part of the signature of a backward pass. */
import type { Node } from '../../autograd/node.js';
import type { RunValue } from '../graph/effects.js';
import { graphHookOf } from '../graph/hook-effects.js';

/**
 * The hooks in the order in which they run: by identity, and those of compiled functions by their
 * graphs. Null if the node has some that cannot be captured. `lift` gets the values that they use.
 */
export function hookFacts(node: Node, lift: (value: RunValue) => void): readonly unknown[] | null {
  if (node.observers !== null && node.observers.size > 0) return null;
  for (const t of node.retained ?? []) if (t !== undefined) lift(t);
  const describe = (hooks: ReadonlyMap<number, object> | null | undefined): readonly unknown[] =>
    [...(hooks?.values() ?? [])].map((hook) => {
      const graph = graphHookOf(hook);
      for (const value of graph?.bound.lifted ?? []) lift(value);
      return graph?.params ?? hook;
    });
  return [
    (node.tensorHooks ?? []).map(describe),
    describe(node.preHooks),
    describe(node.postHooks),
    (node.retained ?? []).map((t) => t !== undefined),
  ];
}
