/** The options of `compile`. */
import { ArgumentError } from '../core/errors.js';
import { checkNumber, optionsOf, unexpected } from '../core/options.js';
import { type BackendName, backendOf, type CompileBackend } from './backends.js';

/** Options of `compile`. */
export interface CompileOptions {
  /** A name of a backend of the library, or a function; `'inductor'` by default. */
  backend?: BackendName | CompileBackend;
  /**
   * True: an effect that a graph cannot repeat is an error. False: the JavaScript of the function
   * then runs at every call, its ops in graphs that end at reads, and the modules that it calls are
   * compiled by themselves.
   */
  fullgraph?: boolean;
  /**
   * Whether one graph serves several shapes. By default it does from the second shape of an
   * argument on; true: from the first call on; false: each shape has a graph of its own. A
   * function still runs as a capture once for each new shape, since it may decide by sizes.
   */
  dynamic?: boolean;
  /** Only `'default'`. */
  mode?: 'default';
  /**
   * Cancels captures: one that is in progress or would start when the signal is aborted ends with a
   * CompileError. Graphs that are there still run.
   */
  signal?: AbortSignal;
  /**
   * Compares each call of this number with an uncompiled run, on copies of the arguments and with
   * the same random numbers; a CompileError names the first result that differs. It is for tests:
   * such a call reads values, and takes as long as both. By default none is compared.
   */
  verify?: number;
}

/** Options as {@link checkedOptions} returns them. */
export interface CompileSettings {
  readonly backend: CompileBackend;
  readonly fullgraph: boolean;
  /** Null: from the second shape on. */
  readonly dynamic: boolean | null;
  readonly signal: AbortSignal | null;
  /** Each call of this number is compared with an uncompiled run; null for none. */
  readonly verify: number | null;
}

/** Allowed values of each option; null for options that are checked elsewhere. */
const knownOptions: Record<keyof CompileOptions, readonly unknown[] | null> = {
  backend: null,
  fullgraph: [true, false, undefined],
  dynamic: [true, false, undefined],
  mode: ['default', undefined],
  signal: null,
  verify: null,
};
const OPTION_NAMES = Object.keys(knownOptions).join(' ');

function checkOptions(options: CompileOptions): void {
  for (const [name, value] of Object.entries(options)) {
    const allowed = knownOptions[name as keyof CompileOptions];
    if (allowed === null || allowed.includes(value)) continue;
    const expected = allowed.filter((v) => v !== undefined).join(' or ');
    throw new ArgumentError(`compile: ${name} can be ${expected}, got ${String(value)}`, {
      op: 'compile',
      argument: name,
      expected,
      given: value,
    });
  }
}

/** @throws ArgumentError if an option or its value is unknown */
export function checkedOptions(options: CompileOptions): CompileSettings {
  const {
    backend = 'inductor',
    fullgraph = false,
    signal = null,
    dynamic = null,
    verify = null,
  } = optionsOf('compile', options, OPTION_NAMES);
  const compiler = backendOf(backend);
  checkOptions(options);
  if (signal !== null && !(signal instanceof AbortSignal))
    throw unexpected('compile', 'signal', 'an AbortSignal', signal);
  if (verify !== null) checkNumber('compile', 'verify', verify, { from: 1, whole: true });
  return { backend: compiler, fullgraph, dynamic, signal, verify };
}
