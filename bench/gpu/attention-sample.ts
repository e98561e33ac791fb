/**
 * The queries of attention that are compared with float64, and their reference, computed by matmul
 * and softmax instead of our attention.
 */
import { arange, autograd, float64, maskedFill, type Tensor } from '../../lib/index.js';

/** A range of queries in one head. */
export interface Place {
  readonly batch: number;
  readonly head: number;
  readonly from: number;
  readonly count: number;
}

/**
 * The mask has shape [batch, 1, queries, keys] and is true where a score counts. Without a mask,
 * attention is causal.
 */
export interface Operands {
  readonly q: Tensor;
  readonly k: Tensor;
  readonly v: Tensor;
  readonly mask?: Tensor;
}

const SEEN = 64;
const exact = (t: Tensor): Tensor => t.detach().to('cpu').to(float64);

/**
 * The first queries of the first head, which attend to few keys, and the last of the last head,
 * which attend to all.
 */
export function placesOf([batch, heads, length]: readonly [
  number,
  number,
  number,
  ...number[],
]): readonly Place[] {
  const count = Math.min(SEEN, length);
  return [
    { batch: 0, head: 0, from: 0, count },
    { batch: batch - 1, head: heads - 1, from: length - count, count },
  ];
}

export const atPlace = (t: Tensor, { batch, head, from, count }: Place): Tensor =>
  t.select(0, batch).select(0, head).narrow(0, from, count);

/** The inverted mask: true where a score does not count. */
function hiddenOf({ k, mask }: Operands, place: Place): Tensor {
  const { from, count } = place;
  if (mask !== undefined)
    return atPlace(mask, { ...place, head: 0 })
      .to('cpu')
      .logicalNot();
  return arange(k.shape[2] as number)
    .unsqueeze(0)
    .gt(arange(from, from + count).unsqueeze(1));
}

/**
 * Computes the result for these queries on the CPU over all keys, or their gradient if that of the
 * result is given.
 */
export function attentionInExact(operands: Operands, place: Place, gradient?: Tensor): Tensor {
  const [heads, keyHeads] = [operands.q.shape[1] as number, operands.k.shape[1] as number];
  const keyHead = Math.floor(place.head / (heads / keyHeads)); // neighbouring heads share one
  const [keys, values] = [operands.k, operands.v].map((t) =>
    exact(t.select(0, place.batch).select(0, keyHead)),
  ) as [Tensor, Tensor];
  const queries = exact(atPlace(operands.q, place)).requiresGrad_(gradient !== undefined);
  const scores = queries.matmul(keys.t()).div(Math.sqrt(queries.shape[1] as number));
  const result = maskedFill(scores, hiddenOf(operands, place), -Infinity)
    .softmax(-1)
    .matmul(values);
  return gradient === undefined
    ? result
    : (autograd.grad([result], [queries], {
        gradOutputs: [exact(atPlace(gradient, place))],
      })[0] as Tensor);
}
