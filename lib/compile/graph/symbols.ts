/**
 * Dynamic graphs: their numbers are expressions of size symbols, which are sizes of inputs. A
 * dynamic graph runs as one of its specialised copies, whose numbers are those of the sizes given.
 */
import { CompileError } from '../../core/errors.js';
import { isPlain } from '../../core/plain-object.js';
import { Tensor, wrapNumber } from '../../core/tensor.js';
import type { RunValue } from './effects.js';
import type { Value, ValueMeta } from './node.js';
import { SizeExpression } from './size-expression.js';

/** A size of inputs that is not the same at all calls. */
export interface SizeSymbol {
  /** The name in printed graphs, such as `s0`. */
  readonly name: string;
  /** The dims of inputs that have the size. */
  readonly places: readonly SizePlace[];
}

/** A dim of an input. */
export interface SizePlace {
  /** The position of the placeholder. */
  readonly input: number;
  /** The dim. */
  readonly dim: number;
}

/** Where a value has expressions; null where it has none. @internal */
export type Template = null | SizeExpression | readonly Template[] | ReadonlyMap<string, Template>;

/** The expressions of a node. Fields that a pass has replaced since are as the pass made them. */
export interface SymbolicFields {
  /** @internal */
  readonly params: Template;
  /** @internal */
  readonly inputs: Template;
  /** @internal */
  readonly metas: Template;
  /** The fields that the expressions are of. @internal */
  readonly of: {
    readonly params: object;
    readonly inputs: readonly Value[];
    readonly metas: readonly ValueMeta[];
  };
}

/** The value with numbers, or with what `at` makes of expressions, in their places. @internal */
export function filled(
  template: Template,
  value: unknown,
  at: (expression: SizeExpression) => unknown,
): unknown {
  if (template === null) return value;
  if (template instanceof SizeExpression) return at(template);
  if (Array.isArray(template)) {
    const items = value as readonly unknown[];
    return template.map((item: Template, i) => filled(item, items[i], at));
  }
  const fields = template as ReadonlyMap<string, Template>;
  if (value instanceof Tensor)
    return wrapNumber(
      at(fields.get('scalarValue') as SizeExpression) as number,
      value.dtype,
      value.device,
    );
  const result: Record<string, unknown> = { ...(value as object) };
  for (const [name, item] of fields) result[name] = filled(item, result[name], at);
  return result;
}

/** The template of an item of a list. @internal */
export const partOf = (template: Template, i: number): Template =>
  Array.isArray(template) ? (template[i] as Template) : null;

/** Whether expressions can stand in the parts of a value. @internal */
export const hasParts = (value: unknown): value is Record<string, unknown> | readonly unknown[] =>
  Array.isArray(value) || isPlain(value);

/**
 * The sizes of the symbols in shapes of inputs; null if the graph does not serve them. @internal
 */
export function sizesIn(
  symbols: readonly SizeSymbol[],
  shapeOf: (input: number) => readonly number[] | undefined,
): number[] | null {
  const sizes: number[] = [];
  for (const { places } of symbols) {
    const { input, dim } = places[0] as SizePlace;
    const size = shapeOf(input)?.[dim] ?? -1;
    if (size < 2) return null;
    for (let i = 1; i < places.length; i++) {
      const place = places[i] as SizePlace;
      if (shapeOf(place.input)?.[place.dim] !== size) return null;
    }
    sizes.push(size);
  }
  return sizes;
}

/** Sizes for which something is kept. */
const MAX_KEPT = 64;

/** Values by the sizes of a dynamic graph's inputs: those used last. @internal */
export class BySizes<T> {
  private readonly kept: { readonly sizes: readonly number[]; readonly value: T }[] = [];
  private readonly symbols: readonly SizeSymbol[];

  constructor(symbols: readonly SizeSymbol[]) {
    this.symbols = symbols;
  }

  /** The value for these inputs. @throws CompileError if the graph does not serve their sizes */
  of(inputs: readonly RunValue[], make: (sizes: readonly number[]) => T): T {
    const { kept, symbols } = this;
    for (let i = kept.length - 1; i >= 0; i--) {
      const found = kept[i] as (typeof kept)[number];
      if (!this.matches(found.sizes, inputs)) continue;
      if (i !== kept.length - 1) kept.push(...kept.splice(i, 1));
      return found.value;
    }
    const sizes = sizesIn(symbols, (input) => shapeOf(inputs[input]));
    if (sizes === null)
      throw new CompileError(
        'a dynamic graph was called with sizes that it does not serve: sizes that were equal at ' +
          'the capture must be equal, and at least 2. Its symbols: ' +
          `${symbols.map(symbolText).join('; ')}`,
      );
    const value = make(sizes);
    kept.push({ sizes, value });
    if (kept.length > MAX_KEPT) kept.shift();
    return value;
  }

  private matches(sizes: readonly number[], inputs: readonly RunValue[]): boolean {
    for (let i = 0; i < sizes.length; i++)
      for (const { input, dim } of (this.symbols[i] as SizeSymbol).places)
        if (shapeOf(inputs[input])?.[dim] !== sizes[i]) return false;
    return true;
  }
}

const shapeOf = (value: RunValue | undefined): readonly number[] | undefined =>
  value instanceof Tensor ? value.sizes : undefined;

/** `s0 is size 0 of input 0 and size 1 of input 2`. @internal */
export function symbolText({ name, places }: SizeSymbol): string {
  const sizes = places.map(({ input, dim }) => `size ${dim} of input ${input}`);
  return `${name} is ${sizes.join(' and ')}`;
}
