/** Numbers of a graph that follow from sizes of its inputs. */

/** What an expression multiplies or divides by: a product of symbols, or the sum of two. */
interface Base {
  readonly symbols: readonly number[];
  readonly isSum: boolean;
}

type Form = 'multiple' | 'inverse' | 'inverseRoot';

/**
 * A number of a dynamic graph: a multiple of sizes plus a constant, or the inverse of a product.
 * Fractions stay exact.
 */
export class SizeExpression {
  private readonly form: Form;
  private readonly base: Base;
  private readonly factor: number;
  private readonly divisor: number;
  private readonly offset: number;

  constructor(form: Form, base: Base, factor: number, divisor = 1, offset = 0) {
    this.form = form;
    this.base = base;
    this.factor = factor;
    this.divisor = divisor;
    this.offset = offset;
  }

  /** The number at these sizes, one for each symbol. */
  at(sizes: readonly number[]): number {
    const base = baseAt(this.base, sizes);
    if (this.form === 'inverse') return this.factor / base;
    if (this.form === 'inverseRoot') return this.factor / Math.sqrt(base);
    return (this.factor * base) / this.divisor + this.offset;
  }

  /** Such as `s0`, `4*s0*s1`, `s0 + 1`, `1/s0`. */
  toString(): string {
    const { symbols, isSum } = this.base;
    const names = symbols.map((symbol) => `s${symbol}`);
    const base = isSum ? `(${names.join(' + ')})` : names.join('*');
    if (this.form === 'inverse') return `${this.factor}/${base}`;
    if (this.form === 'inverseRoot') return `${this.factor}/sqrt(${base})`;
    const multiple = this.factor === 1 ? base : `${this.factor}*${base}`;
    const fraction = this.divisor === 1 ? multiple : `${multiple}/${this.divisor}`;
    if (this.offset === 0) return fraction;
    return `${fraction} ${this.offset < 0 ? '-' : '+'} ${Math.abs(this.offset)}`;
  }
}

function baseAt({ symbols, isSum }: Base, sizes: readonly number[]): number {
  let result = isSum ? 0 : 1;
  for (const symbol of symbols) {
    if (isSum) result += sizes[symbol] as number;
    else result *= sizes[symbol] as number;
  }
  return result;
}

/**
 * The simplest expression that has the given number at each list of sizes; null if there is none.
 * Few lists leave a choice: a caller compares the expression with each further number.
 */
export function fitted(
  numbers: readonly number[],
  sizes: readonly (readonly number[])[],
): SizeExpression | null {
  const bases = basesOf((sizes[0] as readonly number[]).length);
  for (const make of [asSize, asMultiple, asOffset, asInverse, asAffine])
    for (const base of bases)
      for (const found of make(numbers, sizes, base))
        if (
          numbers.every((number, i) => Object.is(found.at(sizes[i] as readonly number[]), number))
        )
          return found;
  return null;
}

type Candidates = (
  numbers: readonly number[],
  sizes: readonly (readonly number[])[],
  base: Base,
) => SizeExpression[];

const asSize: Candidates = (_numbers, _sizes, base) => [new SizeExpression('multiple', base, 1)];

const asMultiple: Candidates = (numbers, sizes, base) => {
  const [number, size] = first(numbers, sizes, base);
  if (!Number.isInteger(number)) return [new SizeExpression('multiple', base, number / size)];
  const common = gcd(Math.abs(number), size);
  return [new SizeExpression('multiple', base, number / common, size / common)];
};

const asOffset: Candidates = (numbers, sizes, base) => {
  const [number, size] = first(numbers, sizes, base);
  return [
    new SizeExpression('multiple', base, 1, 1, number - size),
    new SizeExpression('multiple', base, -1, 1, number + size),
  ];
};

const asInverse: Candidates = (numbers, sizes, base) => {
  const [number, size] = first(numbers, sizes, base);
  return [
    ...nearby(number * size).map((factor) => new SizeExpression('inverse', base, factor)),
    ...nearby(number * Math.sqrt(size)).map((f) => new SizeExpression('inverseRoot', base, f)),
  ];
};

const asAffine: Candidates = (numbers, sizes, base) => {
  const [number, size] = first(numbers, sizes, base);
  const [other, otherSize] = first(numbers.slice(1), sizes.slice(1), base);
  const [rise, run] = [other - number, otherSize - size];
  if (run === 0 || ![rise, run].every(Number.isInteger)) return [];
  const common = gcd(Math.abs(rise), Math.abs(run)) * Math.sign(run);
  const [factor, divisor] = [rise / common, run / common];
  return [
    new SizeExpression('multiple', base, factor, divisor, number - (factor * size) / divisor),
  ];
};

function first(
  numbers: readonly number[],
  sizes: readonly (readonly number[])[],
  base: Base,
): [number: number, size: number] {
  return [numbers[0] as number, baseAt(base, sizes[0] as readonly number[])];
}

/** The number, and the integer that it is but for rounding. */
const nearby = (x: number): number[] =>
  Math.abs(x - Math.round(x)) < 1e-9 * Math.abs(x) ? [Math.round(x), x] : [x];

function gcd(a: number, b: number): number {
  return b === 0 ? a : gcd(b, a % b);
}

/** Products of up to three symbols, and sums of two, the simpler ones first. */
function basesOf(count: number): Base[] {
  const all = Array.from({ length: count }, (_, i) => i);
  const pairs = all.flatMap((i) => all.slice(i).map((j) => [i, j]));
  const triples = pairs.flatMap(([i, j]) => all.slice(j).map((k) => [i as number, j as number, k]));
  const product = (symbols: readonly number[]): Base => ({ symbols, isSum: false });
  return [
    ...all.map((i) => product([i])),
    ...pairs.filter(([i, j]) => i !== j).map((symbols) => ({ symbols, isSum: true })),
    ...pairs.map(product),
    ...triples.map(product),
  ];
}
