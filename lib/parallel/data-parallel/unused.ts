/** Which parameters a backward pass will reach. */
import { autograd, type Tensor, tree } from '../../index.js';

/** The leaves that the graph of the tensors in `result` leads to. */
export function reachedLeaves(result: unknown): ReadonlySet<Tensor> {
  const leaves = new Set<Tensor>();
  const seen = new Set<autograd.Node>();
  const open: autograd.Node[] = [];
  const visit = (node: autograd.Node): void => {
    if (seen.has(node)) return;
    seen.add(node);
    if (node instanceof autograd.AccumulateGrad) leaves.add(node.variable);
    else open.push(node);
  };
  for (const t of tree.tensorsWithin(result)) {
    if (t.gradFn !== null) visit(t.gradFn as autograd.Node);
    else if (t.requiresGrad) leaves.add(t);
  }
  for (let node = open.pop(); node !== undefined; node = open.pop())
    for (const edge of node.edges) if (edge !== null) visit(edge.node);
  return leaves;
}
