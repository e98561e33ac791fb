/**
 * Serializes errors between processes. Node's own serialization loses the class and the properties
 * of an error.
 */
import { AssertionError } from 'node:assert';
import { inspect, types } from 'node:util';
import * as ownErrors from '../../core/errors.js';

/** @internal */
export interface SentError {
  readonly type: string;
  readonly name: string;
  readonly message: string;
  readonly stack: string | undefined;
  readonly code: unknown;
  readonly details: unknown;
  readonly assertion: Assertion | undefined;
  readonly cause: SentError | undefined;
}

/** What a failed assertion compared, of `node:assert` or a library of assertions. */
interface Assertion {
  readonly actual: unknown;
  readonly expected: unknown;
}

type ErrorClass = new (...args: never[]) => Error;

const builtIn: readonly ErrorClass[] = [
  Error,
  EvalError,
  RangeError,
  ReferenceError,
  SyntaxError,
  TypeError,
  URIError,
  AssertionError,
];
const classes = new Map<string, ErrorClass>(
  [...builtIn, ...(Object.values(ownErrors).filter(isErrorClass) as ErrorClass[])].map((each) => [
    each.name,
    each,
  ]),
);

function isErrorClass(value: unknown): boolean {
  return typeof value === 'function' && value.prototype instanceof Error;
}

/** Serializes an error with its causes. @internal */
export function sentError(error: unknown): SentError {
  if (!types.isNativeError(error))
    return {
      type: 'Error',
      name: 'Error',
      message: String(error),
      stack: undefined,
      code: undefined,
      details: undefined,
      assertion: undefined,
      cause: undefined,
    };
  const { code } = error as { code?: unknown };
  return {
    type: error.constructor.name,
    name: error.name,
    message: error.message,
    stack: error.stack,
    code: typeof code === 'string' ? code : undefined,
    details: error instanceof ownErrors.ShardwiseError ? error.details : undefined,
    assertion: assertionOf(error),
    cause: types.isNativeError(error.cause) ? sentError(error.cause) : undefined,
  };
}

function assertionOf(error: object): Assertion | undefined {
  if (!('actual' in error && 'expected' in error)) return undefined;
  return { actual: error.actual, expected: error.expected };
}

/**
 * Without the details, and with texts of what was compared: these may hold values that cannot be
 * sent, such as tensors. @internal
 */
export function plainError({ details, assertion, cause, ...rest }: SentError): SentError {
  return {
    ...rest,
    details: undefined,
    assertion: assertion && {
      actual: inspect(assertion.actual),
      expected: inspect(assertion.expected),
    },
    cause: cause === undefined ? undefined : plainError(cause),
  };
}

/** Restores an error; its class, too, if that is of the library or of JavaScript. @internal */
export function receivedError({
  type,
  name,
  message,
  stack,
  code,
  details,
  assertion,
  cause,
}: SentError): Error {
  const error = new Error(message, cause === undefined ? {} : { cause: receivedError(cause) });
  const known = classes.get(type);
  if (known !== undefined) Object.setPrototypeOf(error, known.prototype);
  else Object.defineProperty(error, 'name', { value: name, configurable: true });
  Object.defineProperty(error, 'stack', { value: stack, configurable: true, writable: true });
  if (code !== undefined) Object.assign(error, { code });
  if (assertion !== undefined) Object.assign(error, assertion);
  // Errors of the library always have some, also where they were not sent.
  if (details !== undefined || error instanceof ownErrors.ShardwiseError)
    Object.defineProperty(error, 'details', { value: details ?? {}, configurable: true });
  return error;
}
