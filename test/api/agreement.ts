/**
 * Checked by tsc alone: a function, its method and its in-place method take the same arguments. Of
 * overloads, only the last is compared.
 */
import type { Absent } from '../../lib/core/absent.js';
import type * as shardwise from '../../lib/index.js';
import type { Tensor } from '../../lib/index.js';

type Functions = typeof shardwise;
type Callable = (...args: never) => unknown;
type Tail<F> = F extends (input: never, ...rest: infer R) => unknown ? R : never;
type Arguments<F> = F extends (...args: infer A) => unknown ? A : never;
type Same<A, B> = [A] extends [B] ? ([B] extends [A] ? true : false) : false;
type Nothing<T extends never> = T;

/** Names that are a function of the package and a method of tensors. */
type Shared = {
  [K in keyof Functions & keyof Tensor]: Functions[K] extends Callable
    ? Tensor[K] extends Callable
      ? K
      : never
    : never;
}[keyof Functions & keyof Tensor];

/** Arguments without options that are `out` alone, which methods do not take, as in PyTorch. */
type WithoutOut<A> = A extends unknown[]
  ? Required<A> extends [...infer Rest, infer Last]
    ? 'out' extends keyof Last
      ? keyof Last extends 'out'
        ? Rest
        : A
      : A
    : A
  : never;

/** Shared names whose arguments after the tensor differ. */
type FunctionsThatDiffer = {
  [K in Shared]: true extends
    | Same<Tail<Functions[K]>, Arguments<Tensor[K]>>
    | Same<WithoutOut<Tail<Functions[K]>>, Required<Arguments<Tensor[K]>>>
    ? never
    : K;
}[Shared];

/** Members of tensors, without those that stand for absent ones. */
type Present = {
  [K in keyof Tensor as Tensor[K] extends Absent<string> ? never : K]: Tensor[K];
};

/** Names whose in-place method takes other arguments. */
type TwinsThatDiffer = {
  [K in keyof Present]: K extends string
    ? `${K}_` extends keyof Present
      ? Same<Arguments<Tensor[K]>, Arguments<Tensor[`${K}_` & keyof Present]>> extends true
        ? never
        : K
      : never
    : never;
}[keyof Present];

/**
 * As in PyTorch: the methods also take sizes one by one; `x.where(condition, other)` has the
 * condition second.
 */
type ByDesign = 'view' | 'reshape' | 'permute' | 'expand' | 'repeat' | 'where';
/** The method, which PyTorch does not have, is the short form that gradients use. */
type ShortForms = 'zerosLike';
/**
 * In-place methods keep their dtype; `bernoulli_` takes one probability, `bernoulli` reads one from
 * each element.
 */
type TwinsByDesign = 'cumsum' | 'cumprod' | 'bernoulli' | 'requiresGrad';

export type FunctionsAgree = Nothing<Exclude<FunctionsThatDiffer, ByDesign | ShortForms>>;
export type TwinsAgree = Nothing<Exclude<TwinsThatDiffer, TwinsByDesign>>;
