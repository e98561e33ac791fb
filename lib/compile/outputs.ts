/** Checks what a backend returned, once for each graph. */
import { CompileError } from '../core/errors.js';
import { shown } from '../core/options.js';
import { sameShape } from '../core/shape.js';
import { Tensor } from '../core/tensor.js';
import type { CompileBackend, CompiledGraph } from './backends.js';
import type { GraphModule } from './graph/graph-module.js';
import { formatMeta, type NodeOrigin, type Value, type ValueMeta } from './graph/node.js';

/** An output of a graph as the capture saw it. */
export interface ExpectedOutput {
  readonly name: string;
  readonly origin: NodeOrigin;
  readonly meta: ValueMeta;
}

/** What the capture knows of an output. */
export function expectedOutput(value: Value, meta: ValueMeta): ExpectedOutput {
  const node = 'number' in value ? null : value.node;
  return { name: node?.name ?? '', origin: node?.origin ?? { site: '', path: '' }, meta };
}

/** Compiles a graph. @throws CompileError if the backend returns no function */
export function compileWith(
  backend: CompileBackend,
  module: GraphModule,
  inputs: readonly Tensor[],
): CompiledGraph {
  const run: unknown = backend(module, inputs);
  if (typeof run === 'function') return run as CompiledGraph;
  throw new CompileError(
    `compile: the backend ${nameOf(backend)} returned ${shown(run)}, and not a function. A ` +
      'backend returns a function that takes one tensor for each input of the graph, such as ' +
      'module.forward.bind(module).',
    { backend: nameOf(backend) },
  );
}

/**
 * Checks the outputs of a compiled graph. @throws CompileError if their number, a shape or a dtype
 * is not that of the graph
 */
export function checkOutputs(
  backend: CompileBackend,
  outputs: unknown,
  expected: readonly ExpectedOutput[],
): void {
  const fail = (what: string, at: string): never => {
    throw new CompileError(
      `compile: the function that the backend ${nameOf(backend)} made returned ${what}${at}. It ` +
        'must return one tensor for each output of the graph, with the shape and dtype that the ' +
        'graph names.',
      { backend: nameOf(backend) },
    );
  };
  if (!Array.isArray(outputs)) fail(`${shown(outputs)} instead of an array`, '');
  const given = outputs as readonly unknown[];
  expected.forEach((output, i) => {
    const { meta } = output;
    const t = given[i];
    if (i >= given.length)
      fail(
        `${given.length} outputs instead of ${expected.length}; the first missing is`,
        place(output),
      );
    if (!(t instanceof Tensor)) fail(`${shown(t)} as output ${i}, which is`, place(output));
    const tensor = t as Tensor;
    if (tensor.storage === null) return;
    if (tensor.dtype !== meta.dtype || !sameShape(tensor.shape, meta.shape))
      fail(`${formatMeta(tensor)} as output ${i}, which is`, place(output));
  });
  if (given.length > expected.length)
    fail(`${given.length} outputs instead of ${expected.length}`, '');
}

/**
 * Checks the number of results of a compiled graph. @throws CompileError for another one, naming the
 * first that is missing
 */
export function checkCount(
  op: string,
  what: string,
  expected: readonly Value[],
  results: unknown,
): void {
  const given = Array.isArray(results) ? results.length : null;
  if (given === expected.length) return;
  const missing = given === null ? undefined : expected[given];
  const first =
    missing === undefined || 'number' in missing
      ? ''
      : `; the first missing is %${missing.node.name}`;
  throw new CompileError(
    `${op}: ${what} returned ${given === null ? shown(results) : `${given} results`} instead of ` +
      `${expected.length}${first}. It must return one value for each result of the graph.`,
    { op, expected: expected.length, given },
  );
}

/** ` %sin, float32[2], of module layers.0, at model.ts:3:5`. */
function place({ name, origin, meta }: ExpectedOutput): string {
  const parts = [` ${name === '' ? 'a number' : `%${name}`}`, formatMeta(meta)];
  if (origin.path !== '') parts.push(`of module ${origin.path}`);
  if (origin.site !== '') parts.push(`called at ${origin.site}`);
  return parts.join(', ');
}

const nameOf = (backend: CompileBackend): string => backend.name || '(anonymous)';
