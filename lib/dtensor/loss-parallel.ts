/** Cross entropy of logits that are sharded along their classes. */
import { lossMode } from '../core/modes.js';
import { checkFlag, checkFunction, checkSynchronous } from '../core/options.js';

/**
 * Inside `fn`, cross entropy takes logits that are sharded along their classes, together with plain
 * targets and weights that every rank has as a whole. It refuses what it could not compute without
 * gathering the logits. Forward needs two all-reduces of a few numbers for each row, backward
 * none. The gradient has the placements and the dtype of the logits, the result is replicated. No
 * other tensor of their size is created, but one copy of logits with more dims than rows and
 * classes. It works for `crossEntropy` and `nn.CrossEntropyLoss`, with ignored targets, class
 * weights and label smoothing; other mesh dims may shard the rows.
 *
 * With distributed targets, cross entropy runs in the same way without this mode. `backward` may be
 * called inside or outside.
 *
 * @throws ShardingError from cross entropy of distributed logits that are not sharded along the
 * classes, of class probabilities, and of weights that are sharded or require a gradient;
 * ArgumentError for an asynchronous function
 * @see PyTorch `torch.distributed.tensor.parallel.loss_parallel`
 * @example
 * const logits = distributeTensor(randn([4, 8]), mesh, [Shard(1)]);
 * const loss = lossParallel(() => crossEntropy(logits, tensor([0, 1, 2, 3], { dtype: int64 })));
 */
export function lossParallel<T>(fn: () => T, enabled = true): T {
  checkFunction('lossParallel', 'fn', fn);
  checkFlag('lossParallel', 'enabled', enabled);
  const before = lossMode.parallel;
  lossMode.parallel = enabled;
  let result: T;
  try {
    result = fn();
  } finally {
    lossMode.parallel = before;
  }
  checkSynchronous('lossParallel', result, 'the mode would end at its first await');
  return result;
}
