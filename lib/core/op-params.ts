/**
 * The schema of an op's parameters: their types, the fields that the kernel gets, and the
 * parameters that sharding decisions depend on. `defineOp` takes a schema, whose keys are in the
 * order of the kernel's struct.
 */

/** Marks a parameter that callers may leave out. */
declare const optionalMark: unique symbol;

/** A parameter of type `T`. */
export interface Param<T> {
  /** Whether the kernel gets it, as the next field of its struct in op_params.h. */
  readonly inKernel: boolean;
  /** The name of that field if it differs from the parameter's. */
  readonly field: string | null;
  /** Converts the parameter to the number that the kernel gets; null if it is a number already. */
  readonly toKernel: ((value: T) => number) | null;
  /**
   * False for random state, which differs from call to call and must not affect sharding decisions.
   */
  readonly inKey: boolean;
  /** Whether callers pass it; false if it is computed or written by `lower`. */
  readonly isPassed: boolean;
  /** Whether `lower` writes it, since it depends on how operands lie in memory. */
  readonly isWrittenByLower: boolean;
}

export interface OptionalParam<T> extends Param<T> {
  readonly [optionalMark]: true;
}

/** A field of the kernel's struct that is not a parameter of the op. */
export interface KernelField {
  readonly inKernel: true;
  readonly field: null;
  readonly toKernel: (() => number) | null;
  readonly inKey: false;
  readonly isPassed: false;
  readonly isWrittenByLower: boolean;
}

// biome-ignore lint/suspicious/noExplicitAny: each parameter is typed where it is declared.
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

/** The functions that declare the parameters of a schema. */
export const param = {
  /** A parameter that the kernel does not get. */
  value<T>(): Param<T> {
    return passed;
  },
  /** An optional parameter that the kernel does not get. */
  optional<T>(): OptionalParam<T> {
    return param.value<T>() as OptionalParam<T>;
  },
  /** A number, or a boolean as 0 or 1, that the kernel gets, under the name `field` if given. */
  kernel<T extends number | boolean = number>(field: string | null = null): Param<T> {
    return { ...passed, inKernel: true, field };
  },
  /** A parameter that the kernel gets as its index in this table. */
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

/** The facts that the layers need from a schema, computed once. */
export interface ParamsPlan {
  /** Fields of the kernel's struct, in order. */
  readonly kernelParams: readonly string[];
  /** Appends the others after `lower`; null if there are none. */
  readonly append: AppendParams | null;
  /** The functions that give numbers which the caller does not pass. */
  readonly computed: readonly (() => number)[];
  /** Parameters that a sharding decision may depend on. */
  readonly keyed: readonly string[];
  /** Whether some are words of random state. */
  readonly hasRandomState: boolean;
}

type Field = [name: string, field: ParamSchema[string]];

/**
 * Compiles a function that reads each parameter by its name, because a loop over names costs some
 * 30 ns per op. Falls back to a loop in processes that forbid `new Function`.
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

/** @throws Error if a field that `lower` writes comes after one that is appended */
export function planParams(schema: ParamSchema): ParamsPlan {
  const entries = Object.entries(schema);
  const fields = entries.filter(([, field]) => field.inKernel);
  const appended = fields.filter(([, field]) => !field.isWrittenByLower);
  const firstAppended = fields.findIndex(([, field]) => !field.isWrittenByLower);
  if (firstAppended >= 0 && fields.slice(firstAppended).length !== appended.length)
    throw new Error('fields that lower writes must come before all other fields of a kernel');
  const plan: { -readonly [K in keyof ParamsPlan]: ParamsPlan[K] } = {
    kernelParams: fields.map(([name, { field }]) => field ?? name),
    append: null,
    computed: appended.flatMap(([, field]) =>
      field.isPassed || field.toKernel === null ? [] : [field.toKernel as () => number],
    ),
    keyed: entries.filter(([, field]) => field.isPassed && field.inKey).map(([name]) => name),
    hasRandomState: entries.some(([, field]) => field.isPassed && !field.inKey),
  };
  // Compiled at the first call, because a program uses few of the ops that it imports.
  if (appended.length > 0)
    plan.append = (command, params) => {
      plan.append = appenderOf(appended);
      plan.append(command, params);
    };
  return plan;
}
