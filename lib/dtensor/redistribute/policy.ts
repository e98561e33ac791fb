/**
 * What is said about redistributions: why they happen, whether they may, and what was asked for.
 */
import { atCallSite } from '../../core/call-site.js';
import { dispatchOne } from '../../core/dispatch.js';
import { ShardingError } from '../../core/errors.js';
import { moduleTrace } from '../../core/module-trace.js';
import { checkFlag } from '../../core/options.js';
import type { DTensorSpec } from '../spec/spec.js';
import { calledName } from './called-as.js';

/** Why ranks communicate at the moment; for those that count collectives. @internal */
export const cause: { called: string | null; text: (() => string) | null; meshDim: string | null } =
  { called: null, text: null, meshDim: null };

/** In words, after what the program called, if that is something else. Takes its time. @internal */
export function causeInWords(): string | null {
  if (cause.text === null) return cause.called;
  const [text, called] = [cause.text(), cause.called ?? calledName(null)];
  return called === null || text.startsWith(`${called}:`) ? text : `${called}, in ${text}`;
}

/**
 * Runs the decomposition of an op; of those in one another the outermost is what was called. Who
 * asks is told later, when functions inside are running too. @internal
 */
export function decomposing<T>(op: string, fn: () => T): T {
  const before = cause.called;
  cause.called = before ?? (moduleTrace.asking > 0 ? calledName(op) : op);
  try {
    return atCallSite(fn, dispatchOne);
  } finally {
    cause.called = before;
  }
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
