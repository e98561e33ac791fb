/** Regions of a profile that the program names. */
import { checkFunction, unexpected } from '../core/options.js';
import { userRegion } from './host-recorder.js';

/**
 * Runs `fn` as a region with a name in tables and traces, until its promise settles if it returns
 * one. Without a profile it runs `fn` alone.
 *
 * @returns what `fn` returns
 * @throws ArgumentError for a name that is none; what `fn` throws
 * @see PyTorch `torch.profiler.record_function`
 * @example const loss = profiler.recordFunction('forward', () => model(x).sum());
 */
export function recordFunction<T>(name: string, fn: () => T): T {
  const op = 'profiler.recordFunction';
  if (typeof name !== 'string' || name === '') throw unexpected(op, 'name', 'a text', name);
  checkFunction(op, 'fn', fn);
  return userRegion(name, fn);
}
