/** Graphs as text, one line for each node. */
import { formatShape } from '../../core/shape.js';
import { type FusedProgram, fusedPointwiseOp, programText } from '../../ops/fused-pointwise.js';
import { effectOf } from './effects.js';
import { formatMeta, type Node, type Value, type ValueMeta } from './node.js';
import { filled, partOf, type SymbolicFields } from './symbols.js';

/** A node as one line. @internal */
export function printNode(n: Node): string {
  const { params, metas, inputs } = inSymbols(n);
  const type = metas.map(formatMeta).join(', ');
  if (n.kind === 'placeholder')
    return `%${n.name}${type === '' ? '' : `: ${type}`} = input${printParams(params)}`;
  if (n.kind === 'constant') return `%${n.name}: ${type} = constant`;
  const operands = [...(n.into ? [n.into] : []), ...inputs].map(printValue);
  const call = `${n.op?.name ?? n.effect}${n.into ? '_' : ''}(${operands.join(', ')})`;
  if (n.kind === 'effect' && effectOf(n.effect as NonNullable<Node['effect']>).outputs === 0)
    return `${call}${printParams(params)}`;
  const typed = type === '' ? n.name : `${n.name}: ${type}`;
  return `%${typed} = ${call}${printParams(params)}${printMode(n)}${printProgram(n)}`;
}

/** The parameters, metas and numbers with expressions as text in the places of their numbers. */
function inSymbols({
  params,
  metas,
  inputs,
  symbolic,
}: Node): Pick<Node, 'params' | 'metas' | 'inputs'> {
  if (symbolic === null) return { params, metas, inputs };
  const { of } = symbolic;
  return {
    inputs: inputs.map((value, i) => inputInSymbols(value, symbolic, i)),
    params: params === of.params ? (filled(symbolic.params, params, String) as object) : params,
    metas: metas === of.metas ? (filled(symbolic.metas, metas, String) as ValueMeta[]) : metas,
  };
}

function inputInSymbols(value: Value, { inputs, of }: SymbolicFields, i: number): Value {
  return value === of.inputs[i] ? (filled(partOf(inputs, i), value, String) as Value) : value;
}

function printMode({ mode }: Node): string {
  if (mode === null) return '';
  return `  under ${mode.enabled ? 'enableGrad' : mode.inference ? 'inferenceMode' : 'noGrad'}`;
}

/** What a fused call computes. */
function printProgram({ op, params, inputs }: Node): string {
  if (op !== fusedPointwiseOp) return '';
  const { program } = params as { program: FusedProgram };
  return `  // ${programText(program, inputs.length)}`;
}

/** A value as it is named in a line. @internal */
export function printValue(value: Value): string {
  if ('number' in value) return String(value.number.scalarValue);
  return value.output === 0 ? `%${value.node.name}` : `%${value.node.name}.${value.output}`;
}

function printParams(params: object): string {
  const shown = Object.entries(params).filter(
    ([, v]) => isPrimitive(v) || (Array.isArray(v) && v.every(isPrimitive)),
  );
  return shown.length
    ? `  { ${shown.map(([k, v]) => `${k}: ${Array.isArray(v) ? formatShape(v) : v}`).join(', ')} }`
    : '';
}

function isPrimitive(value: unknown): boolean {
  return ['number', 'boolean', 'string'].includes(typeof value);
}
