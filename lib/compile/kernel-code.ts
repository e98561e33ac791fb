/** `runAndGetKernelCode`: what the graphs of a call execute, as text. */
import { checkFunction, checkSynchronous } from '../core/options.js';
import { graphWatch, type RunningGraph } from './graph/graph-watch.js';

/**
 * Runs `fn`, and returns its result and what each graph that ran executes: those of compiled
 * functions, of their backward passes and of train steps, each once, in the order in which they
 * began. A text has a line for each command, in order: results are numbered buffers, a view stands
 * where it is read, `waitTensor` where communication is waited for, and a call that writes into
 * memory that is there ends in `_` and names that first. A fused call is followed by its
 * expressions.
 *
 * @throws ArgumentError for what is no function, and for an asynchronous one; what `fn` throws
 * @see PyTorch `torch._inductor.utils.run_and_get_code`
 * @example
 * const gated = compile((t: Tensor) => t.silu().mul(t), { backend: 'inductor' });
 * const [, [code]] = runAndGetKernelCode(gated, x);
 * console.log(code);
 */
export function runAndGetKernelCode<A extends readonly unknown[], R>(
  fn: (...args: A) => R,
  ...args: A
): [result: R, codes: readonly string[]] {
  const op = 'runAndGetKernelCode';
  checkFunction(op, 'fn', fn);
  const outer = graphWatch.current;
  const ran = new Set<RunningGraph>();
  graphWatch.current = (graph) => {
    ran.add(graph);
    outer?.(graph);
  };
  try {
    const result = fn(...args);
    checkSynchronous(op, result, 'only what it runs before its first await would be shown');
    return [result, [...ran].map(({ kernelCode }) => kernelCode)];
  } finally {
    graphWatch.current = outer;
  }
}
