/**
 * The cause of communication, for CommDebugMode and errors, and the mode explicitRedistribution,
 * which forbids implicit redistributions.
 */
import { callContext, calledAs } from '../../core/call-context.js';
import { atCallSite } from '../../core/call-site.js';
import { dispatchOne } from '../../core/dispatch.js';
import { ShardingError, ShardwiseError } from '../../core/errors.js';
import { checkFlag } from '../../core/options.js';
import type { DTensorSpec } from '../spec/spec.js';

/** The cause as text; the op that the program called comes first. @internal */
export function causeText(): string | null {
  const { op, cause } = callContext;
  if (cause === null) return op;
  const text = cause();
  return op === null || text.startsWith(`${op}:`) ? text : `${op}, in ${text}`;
}

/** Errors that have the caller in their message. */
const named = new WeakSet<Error>();

/**
 * Adds the op that the program called to the message of an error from an op inside it. @internal
 */
export function nameCaller(error: unknown): unknown {
  const { op } = callContext;
  if (op === null || !(error instanceof ShardwiseError)) return error;
  if (error.details['op'] !== op && !named.has(error)) {
    error.message = `${op}, in ${error.message}`;
    named.add(error);
  }
  return error;
}

/** Runs the decomposition of an op. @internal */
export function runDecomposition<T>(op: string, fn: () => T): T {
  return calledAs(op, () => {
    try {
      return atCallSite(fn, dispatchOne);
    } catch (error) {
      throw nameCaller(error);
    }
  });
}

/**
 * Runs `fn` with a cause; an outer cause wins. The text is computed only for observers. @internal
 */
export function withCause<T>(text: () => string, fn: () => T): T {
  const before = callContext.cause;
  callContext.cause = before ?? text;
  try {
    return atCallSite(fn, dispatchOne); // most redistributions are inside of an op
  } finally {
    callContext.cause = before;
  }
}

/** Runs a step of a redistribution and records its mesh dimension. @internal */
export function withMeshDim<T>(meshDim: string, fn: () => T): T {
  callContext.meshDim = meshDim;
  try {
    return fn();
  } finally {
    callContext.meshDim = null;
  }
}

let explicit = false;

/**
 * Inside `fn`, ops throw if they would redistribute an input, so every redistribution must be an
 * explicit `redistribute`. Communication that is part of an op and moves no input is still allowed:
 * the sums of a cross entropy of logits that are sharded by classes, the norm of `clipGradNorm_`,
 * an index into rows of other ranks. `CommDebugMode` counts it.
 *
 * @throws ShardingError from ops that would redistribute an input
 */
export function explicitRedistribution<T>(fn: () => T, enabled = true): T {
  checkFlag('explicitRedistribution', 'enabled', enabled);
  const before = explicit;
  explicit = enabled;
  try {
    return fn();
  } finally {
    explicit = before;
  }
}

/** @throws ShardingError inside {@link explicitRedistribution} @internal */
export function checkImplicit(
  op: string,
  given: readonly (DTensorSpec | null)[],
  needed: readonly (DTensorSpec | null)[],
): void {
  if (!explicit) return;
  const lines = given.flatMap((spec, i) =>
    spec === needed[i]
      ? []
      : [`  input ${i}: ${spec}\n    must become [${needed[i]?.placements.join(', ')}]`],
  );
  throw new ShardingError(
    `${op}: an input would have to be redistributed, and explicitRedistribution is on. ` +
      `Redistribute it before the call:\n${lines.join('\n')}`,
    { op, given, needed },
  );
}

const warned = new Set<string>();

/** Warns once for each op. @internal */
export function warnReplicated(op: string): void {
  if (warned.has(op)) return;
  warned.add(op);
  process.emitWarning(
    `${replicationAdvice(op)} This warning is printed once for each op; ` +
      'explicitRedistribution() makes it an error.',
    'ShardingWarning',
  );
}

/** What helps where an op replicates its inputs. @internal */
export const replicationAdvice = (op: string): string =>
  isCustom(op)
    ? `${op} has no sharding rule: its inputs are replicated on every rank. registerSharding(op, ` +
      'rule) gives it one.'
    : `${op} replicates its inputs on every rank. Where each rank needs only its own elements, ` +
      'call it on toLocal(); computeLocalShapeAndGlobalOffset() says where they lie in the whole ' +
      'tensor. Masks in where() and maskedFill() need no indices.';

/** Names of custom ops have a namespace. */
const isCustom = (op: string): boolean => op.includes('::');
