/** Random programs as data, which this library and a peer both run, and their answers. */

/**
 * A tensor of the program: `r` is the number of a result, `k` that of a gradient that a hook kept.
 */
export type Ref = { readonly r: number } | { readonly k: number };
/** An argument of a call. */
export type Argument = number | string | boolean | null | Ref | readonly Argument[];

/**
 * One step, with this library's names. The peer converts them (`indexSelect` to `index_select`).
 */
export type Step =
  | {
      readonly do: 'tensor';
      readonly dtype: string;
      readonly shape: readonly number[];
      readonly data: readonly Scalar[];
      readonly grad: boolean;
    }
  /** A method, else a function, of the first argument. One that ends in `_` gives no new tensor. */
  | {
      readonly do: 'call';
      readonly name: string;
      readonly args: readonly Argument[];
      readonly options?: Readonly<Record<string, Argument>>;
      readonly noGrad?: boolean;
    }
  | {
      readonly do: 'backward';
      readonly of: Ref;
      readonly gradient: Ref | null;
      readonly retainGraph: boolean;
      readonly createGraph: boolean;
      readonly inputs?: readonly Ref[];
    }
  | {
      readonly do: 'grad';
      readonly of: Ref;
      readonly inputs: readonly Ref[];
      readonly gradient: Ref | null;
      readonly retainGraph: boolean;
      readonly createGraph: boolean;
    }
  /**
   * A hook on a tensor, or on the node that made it, which keeps the gradient and gives back
   * nothing, twice the gradient, or a tensor.
   */
  | {
      readonly do: 'hook';
      readonly on: Ref;
      readonly at: 'tensor' | 'node';
      readonly returns: 'nothing' | 'double' | Ref;
    }
  | { readonly do: 'readGrad'; readonly of: Ref }
  | { readonly do: 'setGrad'; readonly of: Ref; readonly to: Ref | null }
  | { readonly do: 'retainGrad'; readonly of: Ref }
  | { readonly do: 'requiresGrad'; readonly of: Ref; readonly value: boolean }
  /**
   * A function of the program, y = x or y = 3 x, which keeps the gradient that it gets and returns
   * it, or a constant.
   */
  | { readonly do: 'function'; readonly kind: 'same' | 'triple' | 'constant'; readonly of: Ref }
  /**
   * A module whose parameters are 0.1, -0.2, 0.3, … become tensors of the program before its
   * result.
   */
  | {
      readonly do: 'module';
      readonly name: string;
      readonly args: readonly Argument[];
      readonly of: Ref;
      readonly keeps: boolean;
    }
  | {
      readonly do: 'optimizer';
      readonly name: string;
      readonly options: Readonly<Record<string, number | boolean>>;
      readonly parameters: readonly Ref[];
    }
  | { readonly do: 'step'; readonly optimizer: number }
  | { readonly do: 'zeroGrad'; readonly optimizer: number; readonly setToNone: boolean }
  | { readonly do: 'clip'; readonly of: readonly Ref[]; readonly maxNorm: number };

export interface Program {
  readonly seed: number;
  readonly steps: readonly Step[];
}

/** A number, or the name of a number that JSON cannot represent. */
export type Scalar = number | 'nan' | 'inf' | '-inf';

/** A tensor at the end of the program. */
export interface Description {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly values: readonly Scalar[];
  readonly requiresGrad: boolean;
  readonly isLeaf: boolean;
  /** Values of `.grad`, or null. */
  readonly grad: readonly Scalar[] | null;
}

/** The answer of this library or of the peer to a program. */
export interface Answer {
  /** The steps that threw an error. */
  readonly refused: readonly number[];
  /** The tensors; null where the peer refuses to read one. */
  readonly tensors: readonly (Description | null)[];
  readonly kept: readonly (readonly Scalar[])[];
}

/** Recorded digits, more than any tolerance needs. */
const DIGITS = 12;

export function encode(value: number | bigint | boolean): Scalar {
  const number = Number(value);
  if (Number.isNaN(number)) return 'nan';
  if (!Number.isFinite(number)) return number > 0 ? 'inf' : '-inf';
  return Number(number.toPrecision(DIGITS));
}

export function decode(value: Scalar): number {
  return value === 'nan'
    ? Number.NaN
    : value === 'inf'
      ? Number.POSITIVE_INFINITY
      : value === '-inf'
        ? Number.NEGATIVE_INFINITY
        : value;
}
