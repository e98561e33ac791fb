/**
 * Errors name the function that the program called, where another op found the fault: `mul_` runs
 * the op `mul`, and `tolist` reads. Names are exchanged as the error passes, so calls cost nothing.
 */
import { ShardwiseError } from './errors.js';

/** The error with `name` in place of `inner`, if that is what it names. @internal */
export function namedAs(error: unknown, inner: string, name: string): unknown {
  if (!(error instanceof ShardwiseError) || error.details['op'] !== inner) return error;
  if (error.message.startsWith(`${inner}: `))
    error.message = name + error.message.slice(inner.length);
  Object.defineProperty(error, 'details', {
    value: { ...error.details, op: name },
    configurable: true,
    enumerable: false,
  });
  return error;
}

/** The error of an op that ran in place, as that of the method. @internal */
export function namedInPlace(error: unknown, op: string, target: object): unknown {
  const method = `${op}_`;
  return method in target ? namedAs(error, op, method) : error;
}

/** The error of whichever op a function runs, as that of the function. @internal */
export function namedAfter(error: unknown, name: string): unknown {
  const inner = error instanceof ShardwiseError ? error.details['op'] : undefined;
  return typeof inner === 'string' ? namedAs(error, inner, name) : error;
}
