/** Checks what backends and the compilers of their graphs returned, once for each graph. */
import { CompileError } from '../core/errors.js';
import { shown } from '../core/options.js';
import { sameShape } from '../core/shape.js';
import { Tensor } from '../core/tensor.js';
import type { CompileBackend } from './backends.js';
import type { Graph } from './graph/graph.js';
import { formatMeta, type NodeOrigin, type Value, type ValueMeta } from './graph/node.js';

/** A function of the program that compiles graphs, as errors name it. */
export interface Compiler {
  /** The call that errors begin with. */
  readonly op: string;
  /** What the function is: `the backend`, or the name of the option. */
  readonly role: string;
  readonly fn: { readonly name: string };
}

/** The backend of a call of `compile`. */
export const backendOfCompile = (fn: CompileBackend): Compiler => ({
  op: 'compile',
  role: 'the backend',
  fn,
});

/** `the backend fast`. A function that has the name of its option only has none. */
export function nameOf({ role, fn }: Compiler): string {
  return fn.name === '' || role.endsWith(fn.name) ? role : `${role} ${fn.name}`;
}

/** The error of a backend that calls the function whose graph it compiles, or which runs it. */
export function ownCallError(backend: CompileBackend, title: string): CompileError {
  return new CompileError(
    `compile: ${nameOf(backendOfCompile(backend))} calls the function that it compiles, or what ` +
      `it made of ${title} does, without end. Run the graph instead: module.forward(...inputs).`,
  );
}

/** An output of a graph as the capture saw it. */
export interface ExpectedOutput {
  readonly name: string;
  readonly origin: NodeOrigin;
  /** Null for what is no tensor, such as a random state. */
  readonly meta: ValueMeta | null;
  /** Whether the output has this dtype and shape at every run. */
  readonly isFixed: boolean;
  /** What it is for, such as `saved for backward`; empty for a result of the function. */
  readonly use: string;
}

/** What the capture knows of an output. */
export function expectedOutput(
  value: Value,
  meta: ValueMeta | null,
  use = '',
  isFixed = meta !== null,
): ExpectedOutput {
  const node = 'number' in value ? null : value.node;
  const { name, origin } = node ?? { name: '', origin: { site: '', path: '' } };
  return { name, origin, meta, use, isFixed };
}

/** What a graph knows of its outputs. `use`: what one is for, by its position. */
export function expectedOutputs(
  { outputs, symbols }: Graph,
  use: (i: number) => string = () => '',
): ExpectedOutput[] {
  return outputs.map((value, i) => {
    const meta = metaOf(value);
    // An effect may give an input other memory than its node says.
    const isCall = 'node' in value && value.node.kind === 'call';
    return expectedOutput(value, meta, use(i), meta !== null && isCall && symbols.length === 0);
  });
}

/** What a graph knows of a value; null for what is no tensor of a node. */
export function metaOf(value: Value): ValueMeta | null {
  return 'number' in value ? null : (value.node.metas[value.output] ?? null);
}

/** Gets the function that a compiler makes. @throws CompileError if it returns none */
export function madeBy<F>(compiler: Compiler, title: string, returned: F): F {
  if (typeof returned === 'function') return returned;
  throw new CompileError(
    `${compiler.op}: ${nameOf(compiler)} returned ${shown(returned)} for ${titleOf(title)}, and ` +
      'not a function. It must return a function that takes one value for each input of the ' +
      'graph, such as module.forward.bind(module).',
    { compiler: nameOf(compiler), given: returned },
  );
}

/**
 * Checks the outputs of a compiled graph. @throws CompileError if their number, a shape or a dtype
 * is not that of the graph
 */
export function checkOutputs(
  compiler: Compiler,
  title: string,
  outputs: unknown,
  expected: readonly ExpectedOutput[],
): void {
  const wrong = mismatch(outputs, expected);
  if (wrong === null) return;
  throw new CompileError(
    `${compiler.op}: the function that ${nameOf(compiler)} made of ${titleOf(title)} returned ` +
      `${wrong.text}. It must return one value for each output of the graph, with the shape and ` +
      'dtype that the graph names, as module.forward does.',
    { compiler: nameOf(compiler), ...wrong.details },
  );
}

/** `run`, whose first outputs are checked. @throws CompileError as {@link checkOutputs} */
export function checkedOnce<I extends readonly unknown[], O>(
  compiler: Compiler,
  title: string,
  run: (...inputs: I) => O,
  expected: readonly ExpectedOutput[],
): (...inputs: I) => O {
  let isChecked = false;
  return (...inputs) => {
    const outputs = run(...inputs);
    if (!isChecked) checkOutputs(compiler, title, outputs, expected);
    isChecked = true;
    return outputs;
  };
}

/** What is wrong with a list of outputs, in words and as data. */
interface Mismatch {
  readonly text: string;
  readonly details: Readonly<Record<string, unknown>>;
}

/**
 * The first difference between outputs, or what is known of them, and those of a graph. `noun`:
 * what they are called, if not outputs.
 */
export function mismatch(
  outputs: unknown,
  expected: readonly ExpectedOutput[],
  noun = 'output',
): Mismatch | null {
  if (!Array.isArray(outputs))
    return {
      text: `${shown(outputs)} instead of an array of ${counted(expected.length, noun)}`,
      details: { given: outputs },
    };
  const given = outputs as readonly unknown[];
  for (const [i, output] of expected.entries()) {
    const wrong = i < given.length ? wrongOutput(given[i], output) : null;
    if (wrong === null) continue;
    const { meta } = output;
    return {
      text: `${wrong} as ${noun} ${i}, which is ${place(output)}`,
      details: { ...detailsOf(output), expected: meta && formatMeta(meta), given: wrong },
    };
  }
  return wrongCount(given.length, expected, noun);
}

function wrongCount(
  given: number,
  expected: readonly ExpectedOutput[],
  noun: string,
): Mismatch | null {
  if (given === expected.length) return null;
  const text = `${counted(given, noun)} instead of ${expected.length}`;
  const details = { expected: expected.length, given };
  const missing = expected[given];
  if (missing === undefined) return { text, details };
  return {
    text: `${text}; the first missing is ${place(missing)}`,
    details: { ...detailsOf(missing), ...details },
  };
}

function detailsOf({ name, origin }: ExpectedOutput): Record<string, unknown> {
  return { node: name, path: origin.path, at: origin.site };
}

/** An output that the graph does not have, in words. */
function wrongOutput(given: unknown, { meta, isFixed }: ExpectedOutput): string | null {
  if (meta === null || !isFixed) return null;
  if (!isMeta(given)) return shown(given);
  if (given instanceof Tensor && given.storage === null) return null;
  const isSame = given.dtype === meta.dtype && sameShape(given.shape, meta.shape);
  return isSame ? null : formatMeta(given);
}

const isMeta = (value: unknown): value is ValueMeta =>
  value instanceof Tensor || (value instanceof Object && 'placements' in value);

/** `%sin, float32[2], of module layers.0, called at model.ts:3:5`. */
function place({ name, origin, meta, use }: ExpectedOutput): string {
  const parts = [name === '' ? 'a number' : `%${name}`];
  if (meta !== null) parts.push(formatMeta(meta));
  if (use !== '') parts.push(use);
  if (origin.path !== '') parts.push(`of module ${origin.path}`);
  if (origin.site !== '') parts.push(`called at ${origin.site}`);
  return parts.join(', ');
}

const titleOf = (title: string): string => title || 'a graph';
const counted = (n: number, noun: string): string => `${n} ${noun}${n === 1 ? '' : 's'}`;
