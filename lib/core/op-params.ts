/**
 * The parameters of an op, said once: their types, what the kernel gets, and what decisions about
 * shards depend on. `defineOp` takes a schema, whose keys are the parameters in the order in which
 * the kernel gets them.
 */

/** Marks a parameter that callers may leave out. */
declare const optionalMark: unique symbol;

/** A parameter of type `T`. */
export interface Param<T> {
  /** Whether the kernel gets it, as the next field of its struct in op_params.h. */
  readonly inKernel: boolean;
  /** The name of that field, where it is not the parameter's. */
  readonly field: string | null;
  /** The number that the kernel gets; null: the parameter itself, as a number. */
  readonly toKernel: ((value: T) => number) | null;
  /** False: random state, which differs from call to call and decides nothing. */
  readonly inKey: boolean;
  /** Whether callers pass it; false: it is computed, or written by `lower`. */
  readonly isPassed: boolean;
  /** Whether `lower` writes it, since it depends on how operands lie in memory. */
  readonly isWrittenByLower: boolean;
}

export interface OptionalParam<T> extends Param<T> {
  readonly [optionalMark]: true;
}

/** A field of the kernel's struct that is no parameter of the op. */
export interface KernelField {
  readonly inKernel: true;
  readonly field: null;
  readonly toKernel: (() => number) | null;
  readonly inKey: false;
  readonly isPassed: false;
  readonly isWrittenByLower: boolean;
}

// biome-ignore lint/suspicious/noExplicitAny: parameters of any type; each is typed where it is declared.
export type ParamSchema = Readonly<Record<string, Param<any> | KernelField>>;

type OptionalNames<S> = {
  [K in keyof S]: S[K] extends OptionalParam<never> ? K : never;
}[keyof S];
type RequiredNames<S> = {
  [K in keyof S]: S[K] extends KernelField ? never : S[K] extends OptionalParam<never> ? never : K;
}[keyof S];
type ValueOf<D> = D extends Param<infer T> ? T : never;

/** The type of the parameters that a schema declares. */
export type ParamsOf<S> = { [K in RequiredNames<S>]: ValueOf<S[K]> } & {
  [K in OptionalNames<S>]?: ValueOf<S[K]>;
};

const passed = {
  inKernel: false,
  field: null,
  toKernel: null,
  inKey: true,
  isPassed: true,
  isWrittenByLower: false,
} as const;
const notPassed = { inKernel: true, field: null, inKey: false, isPassed: false } as const;

/** What a schema is written with. */
export const param = {
  /** A parameter that the kernel does not get. */
  value<T>(): Param<T> {
    return passed;
  },
  /** One that the kernel does not get and that may be left out. */
  optional<T>(): OptionalParam<T> {
    return param.value<T>() as OptionalParam<T>;
  },
  /** A number, or a boolean as 0 or 1, that the kernel gets, under the name `field` if given. */
  kernel<T extends number | boolean = number>(field: string | null = null): Param<T> {
    return { ...passed, inKernel: true, field };
  },
  /** A parameter that the kernel gets as the number of this table. */
  code<T extends string>(codes: Readonly<Record<T, number>>): Param<T> {
    return { ...param.kernel(), toKernel: (value: T) => codes[value] } as Param<T>;
  },
  /** A word of random state for the kernel. */
  random(): Param<number> {
    return { ...param.kernel(), inKey: false };
  },
  /** A number that only the kernel gets, read when the op runs. */
  computed(read: () => number): KernelField {
    return { ...notPassed, toKernel: read, isWrittenByLower: false };
  },
  /** A number for the kernel that `lower` writes; such fields come first. */
  byLower(): KernelField {
    return { ...notPassed, toKernel: null, isWrittenByLower: true };
  },
};

/** Writes the kernel's parameters that `lower` has not written, in the order of its struct. */
export type AppendParams = (command: ParamWriter, params: object) => void;

interface ParamWriter {
  param(value: number): void;
}

/** What the layers need of a schema, computed once. */
export interface ParamsPlan {
  /** Fields of the kernel's struct, in order. */
  readonly kernelParams: readonly string[];
  /** Appends the others after `lower`; null if there are none. */
  readonly append: AppendParams | null;
  /** Parameters that a sharding decision may depend on. */
  readonly keyed: readonly string[];
}

type Field = [name: string, field: ParamSchema[string]];

/**
 * A function that reads each parameter by its name, because a loop over names costs each op of the
 * process some 30 ns. A loop serves where a process may not compile text.
 */
function appenderOf(fields: readonly Field[]): AppendParams {
  const lines = fields.map(([name, { toKernel }], i) => {
    if (!/^\w+$/.test(name)) throw new Error(`"${name}" is not a name of a parameter`);
    const value = `params.${name}`;
    const number = toKernel === null ? `+${value}` : `fields[${i}][1].toKernel(${value})`;
    return `command.param(${number});`;
  });
  try {
    return new Function('fields', `return (command, params) => { ${lines.join(' ')} };`)(fields);
  } catch {
    return (command, params) => {
      for (const [name, { toKernel }] of fields) {
        const value = (params as Record<string, never>)[name];
        command.param(toKernel === null ? Number(value) : toKernel(value));
      }
    };
  }
}

/** @throws Error if a field that `lower` writes stands behind one that is appended */
export function planParams(schema: ParamSchema): ParamsPlan {
  const entries = Object.entries(schema);
  const fields = entries.filter(([, field]) => field.inKernel);
  const appended = fields.filter(([, field]) => !field.isWrittenByLower);
  const firstAppended = fields.findIndex(([, field]) => !field.isWrittenByLower);
  if (firstAppended >= 0 && fields.slice(firstAppended).length !== appended.length)
    throw new Error('fields that lower writes must come before all other fields of a kernel');
  return {
    kernelParams: fields.map(([name, { field }]) => field ?? name),
    append: appended.length === 0 ? null : appenderOf(appended),
    keyed: entries.filter(([, field]) => field.isPassed && field.inKey).map(([name]) => name),
  };
}
