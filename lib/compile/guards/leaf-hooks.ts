/** The hooks of a leaf, which a backward pass in a graph has run at the capture. */
import type { Node } from '../../autograd/node.js';
import type { Tensor } from '../../core/tensor.js';
import type { OwnedFact } from './guards.js';

/** The maps of the hooks that run when a leaf gets a gradient. */
function hookMaps(t: Tensor): ReadonlyMap<number, unknown>[] {
  const node = t.gradAccumulator as Node | null;
  const ofNode = node && [
    ...(node.tensorHooks ?? []),
    node.preHooks,
    node.postHooks,
    node.observers,
  ];
  return [t.postAccumulateHooks, ...(ofNode ?? [])].flatMap((hooks) => hooks ?? []);
}

const hasHooks = ({ postAccumulateHooks, gradAccumulator }: Tensor): boolean => {
  if (postAccumulateHooks !== null) return true;
  const node = gradAccumulator as Node | null;
  if (node === null) return false;
  const { tensorHooks, preHooks, postHooks, observers } = node;
  return tensorHooks !== null || preHooks !== null || postHooks !== null || observers !== null;
};

/** The hooks that run when a leaf gets a gradient. */
export const hooksOf = (t: Tensor): unknown[] =>
  hasHooks(t) ? hookMaps(t).flatMap((hooks) => [...hooks.values()]) : [];

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
