/** Compiles the `operands` of entries into native/generated/contracts.inc. */
import type { AnyOp } from '../lib/core/op.js';
import {
  type Dim,
  formatOperands,
  type Operand,
  type OperandContract,
  parseOperands,
  relations,
} from '../lib/core/operands.js';

const MOST_DIMS = 8;

/** One signature as rows of the table; kernels with equal ones share it. */
class Signature {
  readonly text: string;
  private readonly op: string;
  private readonly contract: OperandContract;
  private readonly params: readonly string[];
  private readonly operands: readonly Operand[];
  private readonly dims: string[] = [];

  constructor(op: AnyOp, text: string, params: readonly string[]) {
    this.op = op.name;
    this.contract = parseOperands(text, op.name);
    this.params = params;
    this.operands = [...this.contract.inputs, ...this.contract.outputs];
    this.text = formatOperands(this.contract);
  }

  /** How many inputs and outputs a command has; null where it depends on a parameter. */
  get counts(): string | null {
    const { inputs, outputs } = this.contract;
    return inputs.some(({ count }) => count !== null)
      ? null
      : `${inputs.length}, ${outputs.length}`;
  }

  get hasIndices(): boolean {
    return this.operands.some(({ indices }) => indices);
  }

  /** Places of the parameters that the contract reads: equal keys, equal rows. */
  get key(): string {
    const used = this.params.flatMap((name, i) =>
      new RegExp(`\\b${name}\\b`).test(this.text) ? [`${name}=${i}`] : [],
    );
    return `${this.text} ${used.join(' ')}`;
  }

  rows(): { operands: string[]; relations: string[]; sizes: string[]; row: string } {
    const { inputs, outputs } = this.contract;
    const lists = inputs.filter(({ count }) => count !== null);
    const operands = this.operands.map((operand) => this.operandRow(operand));
    const rows = this.contract.relations.map(({ name, args }) => {
      const kinds = relations[name] as readonly string[];
      const resolved = args.map((arg, i) => this.resolve(kinds[i] as string, arg));
      return `{${name}, {${resolved.join(', ')}}}`;
    });
    const sizes = this.dims.flatMap((dim, slot) => {
      const param = this.params.indexOf(dim);
      return param === -1 ? [] : [`{${slot}, ${param}}`];
    });
    if (this.dims.length > MOST_DIMS)
      throw new Error(`${this.op}: at most ${MOST_DIMS} dims can have names`);
    const count = lists.length === 0 ? -1 : this.paramAt(lists[0]?.count as string);
    return {
      operands,
      relations: rows,
      sizes,
      row: `${inputs.length - lists.length}, ${lists.length}, ${outputs.length}, ${count}`,
    };
  }

  private operandRow(operand: Operand): string {
    const { optional, layout, indices, classes, letter, accumulated, shape, name } = operand;
    const flags = [
      ...(optional ? ['kOptional'] : []),
      ...(layout === 'dense' ? ['kDense'] : layout === 'indexView' ? ['kIndexView'] : []),
      ...(accumulated ? ['kAccumulated'] : []),
      ...(indices ? ['kIndices'] : []),
    ];
    const dtypes = classes === null ? 'kAnyDType' : classes.map((c) => DTYPES[c]).join(' | ');
    const lead = letter === null ? operand : this.leadOf(letter);
    const sameDtype = lead === operand ? 'kNone' : this.indexOf(lead);
    const row = (kind: string, of: Operand | null, ndim: number, dims: readonly number[] = []) =>
      `{Shape::${kind}, ${flags.join(' | ') || '0'}, ${dtypes}, ${sameDtype}, ${of === null ? 'kNone' : this.indexOf(of)}, ${ndim}, {${dims.join(', ')}}},  // ${name}`;
    if (shape.kind === 'numel') return row('Numel', null, 0, [this.dim(shape.of)]);
    if (shape.kind === 'numelOfList') return row('NumelOf', this.operandNamed(shape.list), 0);
    if (shape.rest === null)
      return row(
        'Dims',
        null,
        shape.dims.length,
        shape.dims.map((d) => this.dim(d)),
      );
    const dims = shape.dims.map((d) => this.dim(d));
    const anchor = shape.rest === '' ? operand : this.anchorOf(shape.rest);
    if (anchor === operand) return row('AtLeast', null, dims.length, dims);
    const kind = JSON.stringify(anchor.shape) === JSON.stringify(shape) ? 'Same' : 'SameRest';
    return row(kind, anchor, dims.length, kind === 'Same' ? [] : dims);
  }

  /** The first operand with a letter that cannot be absent. */
  private leadOf(letter: string): Operand {
    const lead = this.operands.find((o) => o.letter === letter && !o.accumulated && !o.optional);
    if (lead === undefined)
      throw new Error(`${this.op}: no operand that must be given has dtype ${letter}`);
    return lead;
  }

  /** The first operand with the same `...rest` that cannot be absent. */
  private anchorOf(rest: string): Operand {
    const found = this.operands.find(
      ({ optional, shape }) => !optional && shape.kind === 'dims' && shape.rest === rest,
    );
    if (found === undefined)
      throw new Error(`${this.op}: no operand that must be given has the shape ...${rest}`);
    return found;
  }

  private dim(dim: Dim): number {
    if (typeof dim === 'number') return -1 - dim;
    if (!this.dims.includes(dim)) this.dims.push(dim);
    return this.dims.indexOf(dim);
  }

  private operandNamed(name: Dim): Operand {
    const found = this.operands.find((o) => o.name === name);
    if (found === undefined) throw new Error(`${this.op}: no operand is named ${name}`);
    return found;
  }

  /** Inputs from 0 on, outputs from -1 down. */
  private indexOf(operand: Operand): number {
    const output = this.contract.outputs.indexOf(operand);
    return output === -1 ? this.contract.inputs.indexOf(operand) : -1 - output;
  }

  private paramAt(name: Dim): number {
    const at = this.params.indexOf(String(name));
    if (at === -1)
      throw new Error(`${this.op}: ${name} is no kernel parameter (${this.params.join(', ')})`);
    return at;
  }

  private resolve(kind: string, arg: Dim): number {
    if (kind === 'number') return Number(arg);
    if (kind === 'param') return this.paramAt(arg);
    if (kind === 'dim') {
      if (!this.dims.includes(String(arg)))
        throw new Error(`${this.op}: ${arg} is no dim of an operand`);
      return this.dim(arg);
    }
    const operand = this.operandNamed(arg);
    if (operand.optional || operand.count !== null)
      throw new Error(`${this.op}: a relation with ${arg}, which may be absent or is a list`);
    return this.indexOf(operand);
  }
}

const DTYPES = {
  float: 'kFloats',
  float64: 'kFloat64',
  int64: 'kInt64',
  bool: 'kBool',
} as const;

/** Every input may be a number, and all have the sizes of the output: TypeScript broadcasts. */
function pointwiseOperands(arity: number): string {
  const inputs = ['x', 'y', 'z'].slice(0, arity).map((name) => `${name}?: [...s]`);
  return `(${inputs.join(', ')}) -> (out: [...s]) where below(computeType, 3)`;
}

function signatureOf(op: AnyOp): Signature | null {
  if (op.operands === 'any') return null;
  if (op.pointwise !== null)
    return new Signature(op, pointwiseOperands(op.pointwise.arity), ['computeType']);
  if (op.operands === null) throw new Error(`${op.name} has a kernel and no operands`);
  return new Signature(op, op.operands, op.params.kernelParams);
}

/**
 * The table of contracts. A kernel that several entries share has one contract for each number of
 * operands.
 *
 * @param kernels - the entries of each kernel, in the order of kernel ids
 */
export function contractTable(kernels: readonly (readonly AnyOp[])[]): string {
  const signatures = new Map<string, { index: number; signature: Signature }>();
  const contracts = kernels.map((ops) => {
    const own = new Map<string, Signature>();
    for (const op of ops) {
      const signature = signatureOf(op);
      if (signature === null) continue;
      const before = own.get(signature.counts ?? '');
      if (before !== undefined && before.key !== signature.key)
        throw new Error(`${op.name}: ${op.kernel} has other operands in another entry`);
      own.set(signature.counts ?? '', signature);
    }
    const [first = -1, second = -1, ...more] = [...own.values()].map((signature) => {
      const index = signatures.get(signature.key)?.index ?? signatures.size;
      signatures.set(signature.key, { index, signature });
      return index;
    });
    if (more.length > 0) throw new Error(`${ops[0]?.kernel}: at most two contracts for a kernel`);
    const overwrites = ops.some((op) => op.traits.includes('overwrites'));
    const hasIndices = [...own.values()].some((signature) => signature.hasIndices);
    return `    {${first}, ${second}, ${overwrites}, ${hasIndices}},  // ${ops[0]?.kernel}`;
  });
  const operands: string[] = [];
  const rows: string[] = [];
  const where: string[] = [];
  const sizes: string[] = [];
  for (const { signature } of signatures.values()) {
    const compiled = signature.rows();
    const starts = [operands.length, where.length, compiled.relations.length];
    rows.push(
      `    {${compiled.row}, ${starts.join(', ')}, ${sizes.length}, ${compiled.sizes.length},\n     "${signature.text}"},`,
    );
    operands.push(...compiled.operands.map((row) => `    ${row}`));
    where.push(...compiled.relations.map((row) => `    ${row},`));
    sizes.push(...compiled.sizes.map((row) => `    ${row},`));
  }
  return `// What each kernel requires of its operands, from the \`operands\` of the entries.
// Included by native/addon/contracts.cc, which has the types.

constexpr OperandRule kOperands[] = {
${operands.join('\n')}
};

constexpr RelationRule kRelations[] = {
${where.join('\n')}
};

constexpr ParamDim kParamDims[] = {
${sizes.join('\n')}
};

constexpr Signature kSignatures[] = {
${rows.join('\n')}
};

// By kernel id: its signature (-1: the kernel checks its operands), another one or -1, whether it reads nothing of its outputs, and
// whether inputs are indices.
constexpr Contract kContracts[] = {
${contracts.join('\n')}
};
`;
}
