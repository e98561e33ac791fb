/** `withPurpose`: names the reason for collectives, which ranks then compare. */
import { callContext, withPurpose as run } from '../../core/call-context.js';
import { checkFunction, checkSynchronous, unexpected } from '../../core/options.js';

/**
 * Runs `fn` and names the purpose of its collectives. It must be equal on all ranks: another
 * purpose is an error on all of them, which quotes both. Lines after the first are advice for that
 * error. A purpose inside of another one follows it.
 *
 * @throws ArgumentError for what is no string or no function, and for an asynchronous function
 * @example
 * const loss = ones([1]);
 * withPurpose('of the loss', () => allReduce(loss));
 * await loss.read(); // [2]
 */
export function withPurpose<T>(purpose: string, fn: () => T): T {
  if (typeof purpose !== 'string' || purpose === '')
    throw unexpected('withPurpose', 'purpose', 'a string with characters', purpose);
  checkFunction('withPurpose', 'fn', fn);
  const outer = callContext.purpose;
  const result = run(outer === '' ? purpose : `${outer} ${purpose}`, fn);
  checkSynchronous('withPurpose', result, 'the purpose would end at its first await');
  return result;
}
