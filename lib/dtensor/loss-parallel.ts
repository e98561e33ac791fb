/** Losses of logits whose classes the ranks share. */
import { lossMode } from '../core/loss-mode.js';
import { checkFlag, checkFunction, checkSynchronous } from '../core/options.js';

/**
 * Inside `fn`, cross entropy takes logits that are cut along their classes beside plain targets and
 * weights, which each rank has whole, and refuses what could not be computed without gathering the
 * logits. Forward needs two all-reduces of a few numbers for each row, backward none; the gradient
 * of the logits is cut as they are. The result is replicated. Works for `crossEntropy` and
 * `nn.CrossEntropyLoss`, with ignored targets, class weights and label smoothing, and beside mesh
 * dims that cut the rows.
 *
 * Distributed targets need no mode: cross entropy runs in the same way without it. `backward` may
 * be called inside or outside.
 *
 * @throws ShardingError from cross entropy of distributed logits that are not cut along the
 * classes, of class probabilities, of weights that are cut or require a gradient; ArgumentError for
 * an asynchronous function
 * @see PyTorch `torch.distributed.tensor.parallel.loss_parallel`
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
