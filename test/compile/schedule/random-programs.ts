/** Random programs of local ops: a list of numbers for each step makes all its choices. */
import fc from 'fast-check';
import { dispatch } from '../../../lib/core/dispatch.js';
import { type AnyOp, allOps } from '../../../lib/core/op.js';
import {
  bfloat16,
  bool,
  CompileError,
  cat,
  type DType,
  dropout,
  float16,
  float32,
  float64,
  int32,
  rand,
  randperm,
  ShardwiseError,
  type Tensor,
} from '../../../lib/index.js';

/** Chooses numbers below a bound. */
type Choose = (bound: number) => number;

/** A step of a program: adds a tensor to those that later steps read, or changes one. */
type Action = (pool: Tensor[], choose: Choose) => Tensor | null;

const floats = allOps().filter(
  ({ pointwise }) => pointwise !== null && pointwise.classes !== 'I' && !pointwise.condition,
);
/** The shapes of the inputs of a program. */
export const SHAPES = [[4, 6], [6, 4], [6], [4, 1], [2, 3, 4], []] as const;

const any = (pool: Tensor[], choose: Choose): Tensor => pool[choose(pool.length)] as Tensor;
const withDims = (pool: Tensor[], dims: number): Tensor[] => pool.filter((t) => t.ndim >= dims);

/** The tensors that an operand of this shape may be. */
function operandsFor(op: AnyOp, first: Tensor, pool: Tensor[], choose: Choose): Tensor[] {
  const { arity } = op.pointwise as NonNullable<AnyOp['pointwise']>;
  const same = pool.filter((t) => t.shape.join() === first.shape.join());
  return [first, ...Array.from({ length: arity - 1 }, () => any(same, choose))];
}

/** Whether integers may be divided by zero, which is an error. */
const mayFail = (op: AnyOp, operands: readonly Tensor[]): boolean =>
  /divide|remainder|fmod/.test(op.pointwise?.expression ?? '') &&
  !operands.some((t) => t.dtype.isFloatingPoint);

const paramsOf = (op: AnyOp): object => op.samples()[0]?.params ?? {};

const actions: Record<string, Action> = {
  pointwise(pool, choose) {
    const op = floats[choose(floats.length)] as AnyOp;
    const operands = operandsFor(op, any(pool, choose), pool, choose);
    return mayFail(op, operands) ? null : (dispatch(op, operands, paramsOf(op))[0] as Tensor);
  },
  inPlace(pool, choose) {
    const op = floats[choose(floats.length)] as AnyOp;
    const into = any(pool, choose);
    if (isExpanded(into)) return null;
    const operands = operandsFor(op, into, pool, choose);
    if (mayFail(op, operands)) return null;
    const result = op.meta(operands, paramsOf(op))[0];
    if (result === undefined || result.dtype.category > into.dtype.category) return null;
    dispatch(op, operands, paramsOf(op), into);
    return null;
  },
  broadcast(pool, choose) {
    const [a, b] = [any(pool, choose), any(pool, choose)];
    const fits = [...a.shape].reverse().every((size, i) => {
      const other = b.shape[b.ndim - 1 - i] ?? 1;
      return size === other || size === 1 || other === 1;
    });
    return fits ? a.mul(b) : null;
  },
  product(pool, choose) {
    const a = any(withDims(pool, 2), choose);
    const fitting = pool.filter((t) => t.ndim === 2 && t.shape[0] === a.shape.at(-1));
    const b = fitting[choose(Math.max(1, fitting.length))];
    return b === undefined || b.dtype !== a.dtype ? null : a.matmul(b);
  },
  view(pool, choose) {
    const t = any(withDims(pool, 1), choose);
    const dim = choose(t.ndim);
    const size = t.shape[dim] as number;
    switch (choose(6)) {
      case 0:
        return t.transpose(0, dim);
      case 1:
        return size === 0 ? null : t.select(dim, choose(size));
      case 2:
        return t.narrow(dim, Math.min(1, size), Math.max(0, size - 1));
      case 3:
        return t.unsqueeze(dim);
      case 4:
        return t.reshape([t.numel()]);
      default:
        return t.ndim === 1 ? t.expand([2, size]) : t.detach();
    }
  },
  copyInto(pool, choose) {
    const target = any(pool, choose);
    if (!isExpanded(target)) target.copy_(any(operandsLike(target, pool), choose));
    return null;
  },
  overlap(pool, choose) {
    const t = any(withDims(pool, 1), choose);
    const size = t.shape[0] as number;
    if (isExpanded(t) || size < 2) return null;
    t.narrow(0, 1, size - 1).copy_(t.narrow(0, 0, size - 1));
    return null;
  },
  reduction(pool, choose) {
    const t = any(withDims(pool, 1), choose);
    const dim = choose(t.ndim);
    if (t.numel() === 0) return t.sum();
    return [
      () => t.sum(dim),
      () => t.mean({ dim, keepdim: true }),
      () => t.amax(dim),
      () => t.softmax(dim),
      () => t.cumsum(dim),
      () => t.std(),
    ][choose(6)]?.() as Tensor;
  },
  random(pool, choose) {
    const t = any(pool, choose);
    return [
      () => rand([...t.shape]),
      () => dropout(t, 0.5),
      () => (isExpanded(t) ? null : (t.normal_(), null)),
      () => t.gt(0).float().mul(0.5).bernoulli(), // also where t is NaN
    ][choose(4)]?.() as Tensor | null;
  },
  joined(pool, choose) {
    const t = any(withDims(pool, 1), choose);
    return cat([t, t.narrow(0, 0, Math.min(1, t.shape[0] as number))], 0);
  },
  picked(pool, choose) {
    const t = any(withDims(pool, 1), choose);
    return t.indexSelect(0, randperm(t.shape[0] as number));
  },
  scattered(pool, choose) {
    const t = any(withDims(pool, 2), choose);
    return t.scatterAdd(0, t.argsort(0), t);
  },
  converted: (pool, choose) => any(pool, choose).to(float64),
  rounded: (pool, choose) => {
    const dtypes = [bfloat16, float16, float32, float64, int32, bool];
    return any(pool, choose).to(dtypes[choose(dtypes.length)] as DType);
  },
};
/** Those that a program chooses from by default. */
const every = Object.keys(actions).filter((name) => name !== 'rounded');

function isExpanded(t: Tensor): boolean {
  return t.strides.some((stride, d) => stride === 0 && (t.shape[d] as number) > 1);
}

function operandsLike(target: Tensor, pool: Tensor[]): Tensor[] {
  return pool.filter(
    (t) => t.shape.join() === target.shape.join() && t.dtype.category <= target.dtype.category,
  );
}

/** The result of a step; null if the op refuses these tensors, such as a norm of booleans. */
function attempt(step: () => Tensor | null | undefined): Tensor | null {
  try {
    return step() ?? null;
  } catch (error) {
    if (error instanceof ShardwiseError && !(error instanceof CompileError)) return null;
    throw error;
  }
}

/**
 * A program of so many steps, all of whose choices the numbers make. `names`: the actions to choose
 * from; one that is named twice is chosen twice as often.
 */
export function programOf(steps: readonly (readonly number[])[], names: readonly string[] = every) {
  return (...inputs: Tensor[]): Tensor[] => {
    const pool = [...inputs];
    for (const numbers of steps) {
      let at = 0;
      const choose: Choose = (bound) => (numbers[at++ % numbers.length] as number) % bound;
      const made = attempt(() => actions[names[choose(names.length)] as string]?.(pool, choose));
      if (made !== null) pool.push(made);
    }
    return pool.filter((_, i) => i >= inputs.length - 1 && i % 3 !== 1);
  };
}

const numbers = fc.array(fc.nat({ max: 1_000_003 }), { minLength: 8, maxLength: 8 });

/** The numbers of all steps. */
export const programs = (maxLength: number) => fc.array(numbers, { minLength: 1, maxLength });
