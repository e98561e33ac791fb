/**
 * What is said about redistributions: why they happen, whether they may, and what was asked for.
 */
import { callContext, calledAs } from '../../core/call-context.js';
import { atCallSite } from '../../core/call-site.js';
import { dispatchOne } from '../../core/dispatch.js';
import { ShardingError, ShardwiseError } from '../../core/errors.js';
import { checkFlag } from '../../core/options.js';
import type { DTensorSpec } from '../spec/spec.js';

/** Why ranks communicate at the moment, for observers of collectives. @internal */
export const cause: { text: (() => string) | null; meshDim: string | null } = {
  text: null,
  meshDim: null,
};

/** The cause as a text, after what the program called unless it begins with that. @internal */
export function causeInWords(): string | null {
  const { op } = callContext;
  if (cause.text === null) return op;
  const text = cause.text();
  return op === null || text.startsWith(`${op}:`) ? text : `${op}, in ${text}`;
}

/**
 * Puts what the program called before the op of the message, if that is something else. @internal
 */
export function nameCaller(error: unknown): unknown {
  const { op } = callContext;
  if (op === null || !(error instanceof ShardwiseError)) return error;
  const { message } = error;
  if (!message.startsWith(`${op}:`) && !message.startsWith(`${op}, in `))
    error.message = `${op}, in ${message}`;
  return error;
}

/** Runs the decomposition of an op. @internal */
export function decomposing<T>(op: string, fn: () => T): T {
  return calledAs(op, () => {
    try {
      return atCallSite(fn, dispatchOne);
    } catch (error) {
      throw nameCaller(error);
    }
  });
}

/** Runs `fn` with what it communicates for at hand; written out only for who asks. @internal */
export function because<T>(text: () => string, fn: () => T): T {
  const before = cause.text;
  cause.text = before ?? text;
  try {
    return atCallSite(fn, dispatchOne); // most happen in an op
  } finally {
    cause.text = before;
  }
}

/** Runs a step of a redistribution with its mesh dimension written down. @internal */
export function along<T>(meshDim: string, fn: () => T): T {
  cause.meshDim = meshDim;
  try {
    return fn();
  } finally {
    cause.meshDim = null;
  }
}

let explicit = false;

/**
 * Inside `fn`, ops throw that would redistribute an input: every redistribution has to be written
 * down as `redistribute`. What an op computes over ranks by itself it still does, with all inputs
 * as they lie: the sums of a cross entropy of logits that are cut by classes, the norm of
 * `clipGradNorm_`, an index into rows of other ranks. `CommDebugMode` counts those.
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

/** @throws ShardingError where redistributions have to be explicit @internal */
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

/** Once for each op. @internal */
export function warnReplicated(op: string): void {
  if (warned.has(op)) return;
  warned.add(op);
  process.emitWarning(
    `${op} has no sharding rule: its inputs are replicated on every rank. This warning is ` +
      'printed once for each op; explicitRedistribution() makes it an error.',
    'ShardingWarning',
  );
}
