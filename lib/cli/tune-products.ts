/**
 * The products that `shardwise tune` measures: given ones, those of a file, or by default the
 * linear layers of common models.
 */
import { existsSync, readFileSync, statSync } from 'node:fs';
import { ArgumentError } from '../core/errors.js';
import { DTYPES, LAYOUTS, type Product, productText } from '../cuda/matmul-table.js';

const OP = 'shardwise tune';
const FORM =
  'a product "MxNxK", such as 4096x4096x4096, with an optional batch (8xMxNxK) ' +
  'and layout (MxNxK:nn)';
const LARGEST = 2 ** 31;
const LONGEST_FILE = 2 ** 20;

/** @throws ArgumentError for an invalid product */
function parseProduct(
  text: string,
  layouts: readonly Product['layout'][],
  dtypes: readonly Product['dtype'][],
  where: string,
): Product[] {
  const match = /^(\d+(?:x\d+){2,3})(?::(\w+))?$/.exec(text);
  const sizes = match?.[1]?.split('x').map(Number) ?? [];
  const layout = match?.[2];
  if (match === null || sizes.some((size) => size < 1 || size >= LARGEST))
    throw new ArgumentError(`${OP}: expected ${FORM}, got "${text}"${where}`, { op: OP });
  if (layout !== undefined && !LAYOUTS.includes(layout as Product['layout'])) {
    throw new ArgumentError(
      `${OP}: expected a layout of ${LAYOUTS.join(', ')}, got "${layout}" in "${text}"${where}`,
      { op: OP },
    );
  }
  const [batch, m, n, k] = (sizes.length === 4 ? sizes : [1, ...sizes]) as [
    number,
    number,
    number,
    number,
  ];
  const of = layout === undefined ? layouts : [layout as Product['layout']];
  return dtypes.flatMap((dtype) => of.map((each) => ({ dtype, layout: each, batch, m, n, k })));
}

/** Parses products and files of products, one per line; `#` begins a comment. */
export function parseProducts(
  given: readonly string[],
  layouts: readonly Product['layout'][],
  dtypes: readonly Product['dtype'][],
): Product[] {
  const products = given.flatMap((text) => {
    if (/^[\dx]+(:\w*)?$/.test(text) || !existsSync(text))
      return parseProduct(
        text,
        layouts,
        dtypes,
        existsSync(text) ? '' : ', which is not a file either',
      );
    if (statSync(text).size > LONGEST_FILE)
      throw new ArgumentError(`${OP}: ${text} is too long for a list of products`, { op: OP });
    return readFileSync(text, 'utf8')
      .split('\n')
      .flatMap((line, i) => {
        const product = line.replace(/#.*/, '').trim();
        return product === ''
          ? []
          : parseProduct(product, layouts, dtypes, ` in line ${i + 1} of ${text}`);
      });
  });
  return [...new Map(products.map((product) => [productText(product), product])).values()];
}

/**
 * [outputs, inputs] of the linear layers of GPT-2, of a model of 1.5 billion parameters and of
 * Llama 3 8B.
 */
const LAYERS = [
  [2304, 768],
  [768, 768],
  [3072, 768],
  [768, 3072],
  [2048, 2048],
  [8192, 2048],
  [2048, 8192],
  [4096, 4096],
  [6144, 4096],
  [14336, 4096],
  [4096, 14336],
] as const;
const FEW_TOKENS = [1, 8, 16, 32, 64, 128, 256, 512];
const TOKENS = [1024, 2048, 4096, 8192, 16384];

/** Each layer at inference, and its forward pass and both gradients in training. */
export function everydayProducts(dtypes: readonly Product['dtype'][]): Product[] {
  return dtypes.flatMap((dtype) =>
    LAYERS.flatMap(([outputs, inputs]) => [
      ...[...FEW_TOKENS, ...TOKENS].map(
        (m): Product => ({ dtype, layout: 'nt', batch: 1, m, n: outputs, k: inputs }),
      ),
      ...TOKENS.map((m): Product => ({ dtype, layout: 'nn', batch: 1, m, n: inputs, k: outputs })),
      ...TOKENS.map((k): Product => ({ dtype, layout: 'tn', batch: 1, m: outputs, n: inputs, k })),
    ]),
  );
}

/** The names in a list such as "nt,nn". @throws ArgumentError for unknown names */
export function parseNames<T extends string>(text: string, all: readonly T[], what: string): T[] {
  const names = text.split(',').map((name) => name.trim());
  const unknown = names.find((name) => !all.includes(name as T));
  if (unknown !== undefined)
    throw new ArgumentError(`${OP}: expected ${what} of ${all.join(', ')}, got "${unknown}"`, {
      op: OP,
    });
  return [...new Set(names as T[])];
}

export { DTYPES, LAYOUTS };
