/**
 * einsum: sums of products named by letters, computed by permutations and one batched matrix
 * product for each pair.
 */

import { ArgumentError, ShapeError } from '../core/errors.js';
import { unexpected } from '../core/options.js';
import { formatShape } from '../core/shape.js';
import type { Tensor } from '../core/tensor.js';
import { requireTensors } from './operand.js';
import { reshapeIfNeeded } from './reshape-if-needed.js';

interface Labelled {
  tensor: Tensor;
  labels: string[];
}

/**
 * Sum of products over named dims. Shapes: one letter for each dim of an operand, `...` for any
 * number of dims that broadcast; letters that the output lacks are summed, without `->` those that
 * occur more than once. Sizes of a letter are equal or 1; a letter twice in an operand is its
 * diagonal. Dtypes: equal ones, kept (a single operand of integers sums to int64). Gradient: all.
 * Operands are multiplied from left to right.
 *
 * @throws ArgumentError for a malformed equation, an unknown or repeated output letter, or another
 * number of operands; ShapeError if labels or sizes do not fit; DtypeError, DeviceError if operands
 * differ in dtype or device
 * @see PyTorch `torch.einsum`
 * @example
 * einsum('bij,bjk->bik', ones([2, 3, 4]), ones([2, 4, 5])).shape; // [2, 3, 5]
 * einsum('ii', tensor([[1, 2], [3, 4]])); // 5
 */
export function einsum(
  equation: string,
  ...operands: readonly Tensor[] | [readonly Tensor[]]
): Tensor {
  const tensors = (Array.isArray(operands[0]) ? operands[0] : operands) as readonly Tensor[];
  if (typeof equation !== 'string')
    throw unexpected('einsum', 'equation', "a string such as 'ij,jk->ik'", equation);
  requireTensors(tensors, 'einsum');
  const { inputs, output } = parse(equation, tensors);
  const subscripts = inputs.map((labels, i) =>
    onDiagonal(equation, { tensor: tensors[i] as Tensor, labels }),
  );
  checkSizes(equation, subscripts);
  let acc = subscripts[0] as Labelled;
  for (let i = 1; i < subscripts.length; i++) {
    const later = new Set([...output, ...subscripts.slice(i + 1).flatMap((o) => o.labels)]);
    acc = contract(acc, subscripts[i] as Labelled, later);
  }
  const dropped = acc.labels.flatMap((l, i) => (output.includes(l) ? [] : [i]));
  const kept = acc.labels.filter((l) => output.includes(l));
  const summed = dropped.length ? acc.tensor.sum(dropped) : acc.tensor;
  return summed.permute(output.map((l) => kept.indexOf(l)));
}

function parse(
  equation: string,
  tensors: readonly Tensor[],
): { inputs: string[][]; output: string[] } {
  const [left, right, ...more] = equation.replace(/\s+/g, '').split('->');
  const subscripts = (left ?? '').split(',');
  const bad =
    more.length > 0 ||
    subscripts.some((t) => !/^[A-Za-z]*(\.\.\.)?[A-Za-z]*$/.test(t)) ||
    (right !== undefined && !/^[A-Za-z]*(\.\.\.)?[A-Za-z]*$/.test(right));
  if (bad) throw new ArgumentError(`einsum: malformed equation "${equation}"`, { equation });
  if (subscripts.length !== tensors.length)
    throw new ArgumentError(
      `einsum: "${equation}" names ${subscripts.length} operands, ${tensors.length} were given`,
      { equation },
    );
  const ellipsis = Math.max(
    0,
    ...subscripts.map((t, i) =>
      t.includes('...') ? (tensors[i] as Tensor).ndim - (t.length - 3) : 0,
    ),
  );
  const spread = (subscript: string, count: number): string[] => {
    const [before, after] = subscript.split('...') as [string, string | undefined];
    if (after === undefined) return [...before];
    return [
      ...before,
      ...Array.from({ length: count }, (_, i) => `.${ellipsis - count + i}`),
      ...after,
    ];
  };
  const inputs = subscripts.map((t, i) => spread(t, (tensors[i] as Tensor).ndim - (t.length - 3)));
  inputs.forEach((labels, i) => {
    const t = tensors[i] as Tensor;
    if (labels.length !== t.ndim)
      throw new ShapeError(
        `einsum: operand ${i} of "${equation}" has ${labels.length} labels, its shape is ` +
          `${formatShape(t.sizes)}`,
        { equation },
      );
  });
  const output = right === undefined ? implicitOutput(inputs) : spread(right, ellipsis);
  const unknown = output.find((l) => !inputs.some((labels) => labels.includes(l)));
  if (unknown !== undefined || new Set(output).size !== output.length)
    throw new ArgumentError(
      `einsum: expected an output of labels of the operands, each once, got "${equation}"`,
      { equation },
    );
  return { inputs, output };
}

/** Letters that occur once, in alphabetical order, after the ellipsis. */
function implicitOutput(inputs: readonly string[][]): string[] {
  const all = inputs.flat();
  const dots = [...new Set(all.filter((l) => l.startsWith('.')))].sort(
    (a, b) => Number(a.slice(1)) - Number(b.slice(1)),
  );
  const letters = [...new Set(all)]
    .filter((l) => !l.startsWith('.') && all.filter((x) => x === l).length === 1)
    .sort();
  return [...dots, ...letters];
}

/** A letter twice in one operand means its diagonal. */
function onDiagonal(equation: string, { tensor, labels }: Labelled): Labelled {
  for (let i = 0; i < labels.length; i++) {
    const again = labels.indexOf(labels[i] as string, i + 1);
    if (again >= 0) {
      if (tensor.sizes[i] !== tensor.sizes[again]) {
        throw new ShapeError(
          `einsum: "${labels[i]}" stands for dims of sizes ${tensor.sizes[i]} and ` +
            `${tensor.sizes[again]} in one operand of "${equation}"`,
          {
            op: 'einsum',
            equation,
          },
        );
      }
      const rest = labels.filter((_, k) => k !== i && k !== again);
      return onDiagonal(equation, {
        tensor: tensor.diagonal(0, i, again),
        labels: [...rest, labels[i] as string],
      });
    }
  }
  return { tensor, labels };
}

function checkSizes(equation: string, operands: readonly Labelled[]): void {
  const sizes = new Map<string, number>();
  for (const { tensor, labels } of operands) {
    labels.forEach((l, i) => {
      const size = tensor.sizes[i] as number;
      const before = sizes.get(l) ?? 1;
      if (before !== 1 && size !== 1 && before !== size) {
        throw new ShapeError(
          `einsum: "${l}" in "${equation}" has size ${before} in one operand and ` +
            `${size} in another`,
          { equation, label: l },
        );
      }
      sizes.set(l, Math.max(before, size === 1 ? before : size));
    });
  }
}

/**
 * Product of two operands: shared labels that are needed later are batch, shared ones that are not
 * are summed.
 */
function contract(a: Labelled, b: Labelled, later: ReadonlySet<string>): Labelled {
  const shared = a.labels.filter((l) => b.labels.includes(l));
  const sizeIn = (o: Labelled, l: string): number => o.tensor.sizes[o.labels.indexOf(l)] as number;
  const batch = shared.filter((l) => later.has(l));
  const inner = shared.filter((l) => !later.has(l));
  const onlyA = a.labels.filter((l) => !shared.includes(l));
  const onlyB = b.labels.filter((l) => !shared.includes(l));
  const size = (l: string): number => {
    const own = a.labels.includes(l) ? sizeIn(a, l) : 1;
    return own !== 1 || !b.labels.includes(l) ? own : sizeIn(b, l);
  };
  const count = (labels: readonly string[]): number => labels.reduce((n, l) => n * size(l), 1);
  const arrange = (o: Labelled, order: readonly string[]): Tensor =>
    o.tensor.permute(order.map((l) => o.labels.indexOf(l))).expand(order.map(size));
  const left = reshapeIfNeeded(arrange(a, [...batch, ...onlyA, ...inner]), [
    count(batch),
    count(onlyA),
    count(inner),
  ]);
  const right = reshapeIfNeeded(arrange(b, [...batch, ...inner, ...onlyB]), [
    count(batch),
    count(inner),
    count(onlyB),
  ]);
  const labels = [...batch, ...onlyA, ...onlyB];
  return { tensor: reshapeIfNeeded(left.matmul(right), labels.map(size)), labels };
}
