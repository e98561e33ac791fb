/**
 * Weights and tokens from hashes of their indices: both sides begin with the same, however they are
 * sharded, and nothing is sent. peer_train.py computes the same numbers.
 */
import { computeLocalShapeAndGlobalOffset, DTensor } from '../../lib/distributed.js';
import {
  arange,
  type DeviceName,
  float32,
  int64,
  type nn,
  noGrad,
  scope,
  type Tensor,
} from '../../lib/index.js';

const PRIME = 2 ** 31 - 1;
/** Weights are uniform with the standard deviation 0.02. */
const BOUND = 0.02 * Math.sqrt(3);

/** Numbers from 0 to PRIME - 1. */
function hashed(index: Tensor, salt: number): Tensor {
  let x = index
    .mul(1_103_515_245)
    .add(salt * 12_345 + 1)
    .remainder(PRIME);
  for (let round = 0; round < 2; round++) x = x.mul(x).add(1).remainder(PRIME);
  return x;
}

/** Indices of a region of a tensor, in the order of the whole tensor. */
function indices(whole: readonly number[], p: Tensor): Tensor {
  const { shape, offsets } =
    p instanceof DTensor
      ? computeLocalShapeAndGlobalOffset(p._spec)
      : { shape: whole, offsets: whole.map(() => 0) };
  const along = (dim: number): Tensor => {
    const begin = offsets[dim] ?? 0;
    return arange(begin, begin + (shape[dim] ?? 0), { dtype: int64, device: p.device });
  };
  return along(0)
    .mul(whole[1] ?? 1)
    .unsqueeze(1)
    .add(along(1));
}

/** Matrices get hashes; weights of norms are 1, biases 0, as they are made. */
export function initialize(model: nn.AnyModule): void {
  noGrad(() => {
    for (const [i, [name, p]] of [...model.namedParameters()].entries())
      scope(() => {
        const local = p instanceof DTensor ? p.toLocal() : p;
        if (p.shape.length < 2) {
          local.fill_(name.endsWith('bias') ? 0 : 1);
          return;
        }
        const values = hashed(indices(p.shape, p), i).double();
        local.copy_(
          values
            .mul((2 * BOUND) / PRIME)
            .sub(BOUND)
            .to(float32),
        );
      });
  });
}

/** Tokens `[batch, context]` of a rank of data. */
export function tokensOf(
  [batch, context]: readonly [number, number],
  { vocabulary, rank, salt }: { vocabulary: number; rank: number; salt: number },
  device: DeviceName,
): Tensor {
  const begin = rank * batch * context;
  const index = arange(begin, begin + batch * context, { dtype: int64, device });
  return hashed(index, 1000 + salt)
    .remainder(vocabulary)
    .view([batch, context]);
}
