/** Compares what was seen of a compiled program with what was seen of the eager one. */
import type { Program } from './program.js';
import { EAGER, type Facts, observe, type Variant } from './run.js';

const TOLERANCE = 1e-9;

/** The first difference from eager, as text; null if there is none. */
export function difference(
  program: Program,
  variant: Variant,
  expected = observe(program, EAGER),
): string | null {
  const actual = observe(program, variant, expected.length);
  const allowed = new Allowed(program, variant);
  for (const [call, facts] of expected.entries()) {
    const other = actual[call];
    if (other === undefined) return `call ${call} did not run`;
    if ('error' in facts || 'error' in other)
      return allowed.error(facts, other)
        ? null
        : `call ${call}: error ${errorOf(other)}, eager ${errorOf(facts)}`;
    for (const name of Object.keys(facts))
      if (!same(facts[name], other[name]) && !allowed.fact(name, facts, other))
        return `call ${call}: ${name} is ${json(other[name])}, eager ${json(facts[name])}`;
  }
  return null;
}

const errorOf = ({ error, message }: Facts): string => `${error} ${message}`;
const json = (value: unknown): string => JSON.stringify(value);

/** What a variant does otherwise, as documented. */
class Allowed {
  private readonly isCaptured: boolean;
  private readonly isLowered: boolean;
  private readonly isDecomposed: boolean;
  /** Whether ops are decomposed that read tensors which change in a way that no version counts. */
  private readonly readsChanged: boolean;
  /** Whether a tensor becomes a gradient: where that accumulates is another order of nodes. */
  private readonly sharesGradients: boolean;
  /** Whether it may register hooks on the one node of a module that is compiled below a break. */
  private readonly hooksFrames: boolean;

  constructor({ body }: Program, { fn, passes }: Variant) {
    this.isDecomposed = fn === 'aot_eager_decomp_partition';
    this.isLowered = fn !== null && fn !== 'eager';
    this.isCaptured = this.isLowered || passes !== null;
    const has = (part: RegExp): boolean => body.some(({ code }) => part.test(code));
    const computesAgain = [fn, passes].some(
      (each) => each?.endsWith('partition') || each === 'inductor',
    );
    this.readsChanged = computesAgain && has(/\.data\./);
    this.sharesGradients = has(/\.grad = /);
    this.hooksFrames = has(/\.gradFn\.register/) && has(/graphBreak|item\(|backward\(|\.grad\(/);
  }

  error(facts: Facts, other: Facts): boolean {
    if (facts.error === other.error) return true;
    // A captured backward has read what was saved before gradients accumulate.
    if (facts.error === 'InPlaceError' && this.isCaptured) return true;
    // A compiled function is one node, which a second backward pass through it needs whole.
    if (this.isLowered && /a second time/.test(String(other.message))) return true;
    // As documented, where hooks of the program run in its backward.
    if (other.error === 'AutogradError' && this.isLowered)
      return /^expected a result of fn, which is/.test(String(other.message));
    if (other.error === 'InPlaceError' && this.isLowered && this.sharesGradients) return true;
    // It saves inputs instead of what follows from them, and sees that they have changed.
    return other.error === 'InPlaceError' && this.isDecomposed;
  }

  /**
   * Lowered graphs do not keep the number of in-place changes of a result, or of a tensor that
   * becomes an attribute, that it was a view of a tensor which only the function had, and that no
   * gradient reached a tensor. Decomposed ones compute gradients from inputs as they are by then.
   * A hook on the node of a compiled module gets other gradients than one on that of its last op.
   */
  fact(name: string, facts: Facts, other: Facts): boolean {
    const isGradient = /^gradient/.test(name);
    if (isGradient && this.readsChanged) return true;
    if (!this.isLowered) return false;
    if (isGradient) return this.hooksFrames || (isNothing(facts[name]) && isNothing(other[name]));
    return (
      /^version of (result|\w+\.last)/.test(name) ||
      (/^base of (result|\w+\.last)/.test(name) &&
        /^(inner|result)/.test(String(facts[name])) &&
        (other[name] === null || other[name] === 'inner'))
    );
  }
}

/** Whether a gradient is null or zero: a lowered backward gets zeros where nothing asks. */
const isNothing = (value: unknown): boolean =>
  value === null || value === 0 || (Array.isArray(value) && value.every(isNothing));

function same(a: unknown, b: unknown): boolean {
  if (typeof a === 'number' && typeof b === 'number')
    return Object.is(a, b) || Math.abs(a - b) <= TOLERANCE * (1 + Math.abs(a));
  if (Array.isArray(a) && Array.isArray(b))
    return a.length === b.length && a.every((x, i) => same(x, b[i]));
  return a === b;
}
