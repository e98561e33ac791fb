/**
 * The notation of an entry's `operands`: shapes and dtypes that its kernel requires, as `lower`
 * writes them. scripts/generate.ts compiles it into native/generated/contracts.inc, by which the
 * addon checks each command before the kernel reads memory.
 *
 *     (a: T[b, m, k], b: T[b, k, n], addend?: T[b, m, n]) -> (y: T[b, m, n])
 *     (at: indices [...s], source?: [...s]) -> (y: [...]) where within(at, y), below(reduce, 5)
 *
 * An operand is `name: layout indices dtype shape`; all but the shape may be left out.
 *
 * - `name?` may be an immediate: a number, or an absent operand.
 * - `name[count]` is a list of as many operands as the kernel parameter `count` says. Lists come
 *   last among the inputs, and all have the same parameter.
 * - Layout: `dense` is row-major without gaps; `indexView` has sizes and strides and no data.
 * - `indices`: the kernel reads or writes other operands at these places. It checks them before, so
 *   outputs may not overlap them.
 * - Dtype: `float`, `float64`, `int64`, `bool`, several of them as `float|bool`, a capital letter
 *   for operands of one dtype, both as `float T`, or `acc(T)`: float64 for float64, else float32.
 * - Shape: `[r, c]` names dims, which are equal wherever the name is the same. A dim named after a
 *   kernel parameter has its value. `[...]` is any shape, `[...s]` one that all operands with it
 *   share, `[...s, n]` the same with at least one dim. `numel(r)` is any shape of r elements,
 *   `numel(x[i])` one with as many elements as the operand at the same place in the list x.
 * - `where` adds relations that shapes cannot say: {@link relations}.
 *
 * `any` in place of all: the kernel itself checks what it gets.
 */
import { ShardwiseError } from './errors.js';

/** Sizes of an operand. */
export type OperandShape =
  | { readonly kind: 'dims'; readonly rest: string | null; readonly dims: readonly Dim[] }
  | { readonly kind: 'numel'; readonly of: Dim }
  | { readonly kind: 'numelOfList'; readonly list: string };

/** A named dim, or a size. */
export type Dim = string | number;

/** One operand of a kernel, or a list of them. */
export interface Operand {
  readonly name: string;
  /** The kernel parameter with the length of the list; null for one operand. */
  readonly count: string | null;
  readonly optional: boolean;
  readonly layout: 'strided' | 'dense' | 'indexView';
  /** Its values are places in other operands: no output may overlap it. */
  readonly indices: boolean;
  /** Allowed dtypes; null for all. */
  readonly classes: readonly DtypeClass[] | null;
  /** Operands with the same letter have the same dtype. */
  readonly letter: string | null;
  /** The dtype is the one that sums of `letter` are accumulated in. */
  readonly accumulated: boolean;
  readonly shape: OperandShape;
}

export type DtypeClass = 'float' | 'float64' | 'int64' | 'bool';

/** A condition on operands, dims and kernel parameters. */
export interface Relation {
  readonly name: string;
  readonly args: readonly Dim[];
}

/** What a kernel requires of a command. */
export interface OperandContract {
  readonly inputs: readonly Operand[];
  readonly outputs: readonly Operand[];
  readonly relations: readonly Relation[];
}

type ArgKind = 'operand' | 'dim' | 'param' | 'number';

/**
 * The relations, each a function of native/addon/contracts.cc, and the kinds of their arguments.
 */
export const relations: Readonly<Record<string, readonly ArgKind[]>> = {
  /** The parameter is a whole number from 0 and below the limit. */
  below: ['param', 'number'],
  /** The first dim is at most the second. */
  atMost: ['dim', 'dim'],
  /** The second dim is a multiple of the first. */
  divides: ['dim', 'dim'],
  /**
   * From the parameter on, a whole number, there are as many elements as the first dim in the
   * second.
   */
  inside: ['param', 'dim', 'dim'],
  /** The dim is the number of dims of the operand. */
  rank: ['operand', 'dim'],
  /** Both have as many dims, and all but the last of the first operand are at most the second's. */
  within: ['operand', 'operand'],
  /**
   * The second operand has as many elements as the first one's dims without the last `param` ones.
   */
  reducesTo: ['operand', 'operand', 'param'],
  /** The second operand has `dim` slices of the first: what an index of `param` dims selects. */
  slices: ['operand', 'operand', 'param', 'dim'],
  /**
   * The first operand has a start for each tile of `param` elements of the third and an end, the
   * second a word for each 64 elements.
   */
  tiles: ['operand', 'operand', 'operand', 'param'],
};

const OPERAND =
  /^(\w+)(?:\[(\w+)\])?(\?)?: *(?:(dense|indexView)\b *)?(?:(indices)\b *)?((?:float64|float|int64|bool)(?:\|(?:float64|float|int64|bool))*)? *(?:([A-Z])\b|acc\(([A-Z])\))? *(\[.*\]|numel\(.*\))$/;
const REST = /^\.\.\.(\w*)$/;
const NAME = /^[a-z]\w*$/i;

/**
 * Reads the notation.
 *
 * @param op - name of the entry, for errors
 * @throws ShardwiseError naming the operand that is malformed
 */
export function parseOperands(text: string, op: string): OperandContract {
  const [, inputs, outputs, where] = /^\((.*)\) -> \((.*?)\)(?: where (.*))?$/.exec(
    text.replaceAll(/\s+/g, ' ').trim(),
  ) ?? [null, null, null, null];
  if (inputs == null || outputs == null)
    throw bad(op, `expected "(inputs) -> (outputs)", then perhaps "where ...", got "${text}"`);
  const contract = {
    inputs: split(inputs).map((each) => parseOperand(each, op)),
    outputs: split(outputs).map((each) => parseOperand(each, op)),
    relations: split(where ?? '').map((each) => parseRelation(each, op)),
  };
  checkContract(contract, op);
  return contract;
}

/** A contract as text, equal for equal contracts. */
export function formatOperands({ inputs, outputs, relations }: OperandContract): string {
  const list = (operands: readonly Operand[]): string =>
    `(${operands.map(formatOperand).join(', ')})`;
  const where = relations.map(({ name, args }) => `${name}(${args.join(', ')})`).join(', ');
  return `${list(inputs)} -> ${list(outputs)}${where === '' ? '' : ` where ${where}`}`;
}

function formatOperand(operand: Operand): string {
  const { name, count, optional, layout, indices, classes, letter, accumulated, shape } = operand;
  const dtype = [
    classes?.join('|') ?? '',
    letter === null ? '' : accumulated ? `acc(${letter})` : letter,
  ].filter((word) => word !== '');
  const words = [
    ...(layout === 'strided' ? [] : [layout]),
    ...(indices ? ['indices'] : []),
    ...dtype,
  ];
  const list = count === null ? '' : `[${count}]`;
  const text = formatShape(shape);
  const space =
    words.length === 0 || (letter !== null && !accumulated && text[0] === '[') ? '' : ' ';
  return `${name}${list}${optional ? '?' : ''}: ${words.join(' ')}${space}${text}`;
}

function formatShape(shape: OperandShape): string {
  if (shape.kind === 'numel') return `numel(${shape.of})`;
  if (shape.kind === 'numelOfList') return `numel(${shape.list}[i])`;
  const rest = shape.rest === null ? [] : [`...${shape.rest}`];
  return `[${[...rest, ...shape.dims].join(', ')}]`;
}

function bad(op: string, what: string): ShardwiseError {
  return new ShardwiseError('ERR_OP', `operands of ${op}: ${what}`, { op });
}

/** Splits at commas outside brackets. */
function split(text: string): string[] {
  const parts: string[] = [];
  let depth = 0;
  let start = 0;
  for (let i = 0; i <= text.length; i++) {
    const c = text[i];
    if (c === '[' || c === '(') depth++;
    else if (c === ']' || c === ')') depth--;
    else if (c === undefined || (c === ',' && depth === 0)) {
      const part = text.slice(start, i).trim();
      if (part !== '') parts.push(part);
      start = i + 1;
    }
  }
  return parts;
}

function parseOperand(text: string, op: string): Operand {
  const found = OPERAND.exec(text);
  if (found === null)
    throw bad(
      op,
      `expected "name: layout indices dtype [dims]" as lib/core/operands.ts describes, got "${text}"`,
    );
  const [, name = '', count, optional, layout, indices, classes, letter, accumulated, shape = ''] =
    found;
  return {
    name,
    count: count ?? null,
    optional: optional !== undefined,
    layout: (layout as 'dense' | 'indexView' | undefined) ?? 'strided',
    indices: indices !== undefined,
    classes: classes === undefined ? null : (classes.split('|') as DtypeClass[]),
    letter: letter ?? accumulated ?? null,
    accumulated: accumulated !== undefined,
    shape: parseShape(shape, text, op),
  };
}

function parseShape(shape: string, operand: string, op: string): OperandShape {
  const [, list] = /^numel\((\w+)\[i\]\)$/.exec(shape) ?? [];
  if (list !== undefined) return { kind: 'numelOfList', list };
  const inside = split(shape.slice(shape.indexOf(shape[0] === '[' ? '[' : '(') + 1, -1));
  if (shape[0] !== '[') {
    if (inside.length !== 1) throw bad(op, `numel takes one dim: "${operand}"`);
    return { kind: 'numel', of: parseDim(inside[0] as string, operand, op) };
  }
  const rest = REST.exec(inside[0] ?? '')?.[1] ?? null;
  const dims = (rest === null ? inside : inside.slice(1)).map((dim) => parseDim(dim, operand, op));
  return { kind: 'dims', rest, dims };
}

function parseDim(text: string, where: string, op: string): Dim {
  if (/^\d+$/.test(text)) return Number(text);
  if (NAME.test(text)) return text;
  throw bad(op, `expected a name or a number, got "${text}" in "${where}"`);
}

function parseRelation(text: string, op: string): Relation {
  const [, name = '', inside = ''] = /^(\w+)\((.*)\)$/.exec(text) ?? [];
  const kinds = relations[name];
  if (kinds === undefined)
    throw bad(op, `"${text}" is no relation; there are ${Object.keys(relations).join(', ')}`);
  const args = split(inside).map((arg) => parseDim(arg, text, op));
  if (args.length !== kinds.length)
    throw bad(op, `expected ${name}(${kinds.join(', ')}), got "${text}"`);
  return { name, args };
}

function checkContract({ inputs, outputs }: OperandContract, op: string): void {
  const all = [...inputs, ...outputs];
  const names = all.map(({ name }) => name);
  const twice = names.find((name, i) => names.indexOf(name) !== i);
  if (twice !== undefined) throw bad(op, `two operands are named ${twice}`);
  const lists = all.filter(({ count }) => count !== null);
  const first = inputs.findIndex(({ count }) => count !== null);
  if (first !== -1 && inputs.slice(first).some(({ count }) => count !== inputs[first]?.count))
    throw bad(op, 'lists come last among the inputs, and have one length');
  if (outputs.some(({ count }) => count !== null)) throw bad(op, 'outputs are no lists');
  for (const { name, shape } of all)
    if (shape.kind === 'numelOfList' && !lists.some((list) => list.name === shape.list))
      throw bad(op, `${name} refers to ${shape.list}, which is no list`);
}
