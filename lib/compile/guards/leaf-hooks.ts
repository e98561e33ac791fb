/** The hooks of a leaf, which a backward pass in a graph has run at the capture. */
import type { AccumulateGrad } from '../../autograd/accumulate-grad.js';
import type { Tensor } from '../../core/tensor.js';
import type { OwnedFact } from './guards.js';

/** All that runs when a leaf gets a gradient. */
function allHooks(t: Tensor): unknown[] {
  const node = t.gradAccumulator as AccumulateGrad | null;
  const maps: (ReadonlyMap<number, unknown> | null | undefined)[] = [t.postAccumulateHooks];
  if (node !== null)
    maps.push(...(node.tensorHooks ?? []), node.preHooks, node.postHooks, node.observers);
  const hooks: unknown[] = maps.flatMap((map) => [...(map?.values() ?? [])]);
  return node?.arrived ? [...hooks, node.arrived] : hooks;
}

const hasHooks = ({ postAccumulateHooks, gradAccumulator }: Tensor): boolean => {
  if (postAccumulateHooks !== null) return true;
  const node = gradAccumulator as AccumulateGrad | null;
  if (node === null) return false;
  const { tensorHooks, preHooks, postHooks, observers, arrived } = node;
  const hasOwn = tensorHooks !== null || preHooks !== null || postHooks !== null;
  return hasOwn || observers !== null || arrived !== null;
};

/** The hooks that run when a leaf gets a gradient. */
export const hooksOf = (t: Tensor): unknown[] => (hasHooks(t) ? allHooks(t) : []);

/** The facts that a leaf has the hooks that it has now, in their order. */
export function leafHookFacts(t: Tensor, owner: number | Tensor, path: string): OwnedFact[] {
  const hooks = hooksOf(t);
  const count: OwnedFact = {
    owner,
    path: `the number of hooks of ${path}`,
    read: (given) => (hasHooks(given) ? hooksOf(given).length : 0),
    expected: hooks.length,
  };
  const each = hooks.map(
    (expected, i): OwnedFact => ({
      owner,
      path: `hook ${i} of ${path}`,
      read: (given) => hooksOf(given)[i],
      expected,
    }),
  );
  return [count, ...each];
}
