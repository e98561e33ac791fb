/**
 * Errors name the function that the program called, where another op found the fault: `mul_` runs
 * the op `mul`, and `tolist` reads. Names are exchanged as the error passes, so calls cost nothing.
 */
import { ShardwiseError } from './errors.js';
import { opByName } from './op.js';

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

/** Whether it names an op, or an op in place. */
const isOp = (name: string): boolean =>
  opByName(name) !== undefined || opByName(name.replace(/_$/, '')) !== undefined;

/**
 * The error of an op that the library ran for a call of the program, which did not call that op:
 * the message begins with the call, which `said` describes. Errors that name no op of the table
 * stay as they are.
 *
 * @internal
 */
export function onBehalfOf(error: unknown, call: string, said: () => string = () => call): unknown {
  if (!(error instanceof ShardwiseError)) return error;
  const inner = error.details['op'];
  if (typeof inner !== 'string' || !isOp(inner)) return error;
  if (!error.message.startsWith(`${inner}: `)) return error;
  const text = said();
  if (text === inner) return error;
  error.message = `${text}, in ${error.message}`;
  Object.defineProperty(error, 'details', {
    value: { ...error.details, op: call, inner },
    configurable: true,
    enumerable: false,
  });
  return error;
}

/** Runs library code for a call of the program; see {@link onBehalfOf}. @internal */
export function workingFor<T>(call: string, fn: () => T): T {
  try {
    return fn();
  } catch (error) {
    throw onBehalfOf(error, call);
  }
}

/** The error of whichever op a function runs, as that of the function. @internal */
export function namedAfter(error: unknown, name: string): unknown {
  const inner = error instanceof ShardwiseError ? error.details['op'] : undefined;
  return typeof inner === 'string' ? namedAs(error, inner, name) : error;
}
