/**
 * Several collectives of one kind in one call, each between tensors of its own: no copies into one
 * buffer, and one launch on GPUs.
 *
 * @see PyTorch `torch.distributed._functional_collectives.all_gather_into_tensor_coalesced`
 */
import { callSite } from '../../core/call-site.js';
import type { CollectivePart } from '../../core/collective.js';
import { ArgumentError } from '../../core/errors.js';
import { shown } from '../../core/options.js';
import type { Tensor } from '../../core/tensor.js';
import { type ReduceOptions, reduceOptions } from './collectives.js';
import { memberOf } from './new-group.js';
import {
  type AsyncOption,
  apartFrom,
  type CollectiveOptions,
  checkNumel,
  checkSame,
  collectiveOptions,
  dense,
  denseOutput,
  equalCounts,
  perform,
  type WorkIf,
} from './operands.js';
import type { ProcessGroup } from './process-group.js';

/** A list of a call, ready for the engine. */
interface Prepared {
  readonly parts: readonly CollectivePart[];
  /** Elements of one rank in all parts together. */
  readonly each: number;
  /** What the ranks must have in common. */
  readonly about: string;
  readonly after: (() => void) | undefined;
}

/**
 * {@link allGatherIntoTensor} for each output and the input at its place in the list, in one call.
 * All have one dtype and are on one device. Outputs must not overlap each other, nor the input of
 * another one.
 *
 * @returns a {@link Work} if `asyncOp` is true
 * @throws ArgumentError unless the lists have equal lengths from 1; ShapeError unless each output
 * has as many elements as the inputs of all ranks together
 * @see PyTorch `torch.distributed._functional_collectives.all_gather_into_tensor_coalesced`
 * @example
 * const [a, b] = [zeros([2]), zeros([4])];
 * allGatherIntoTensorCoalesced([a, b], [ones([1]), ones([2])]);
 * await b.read(); // [1, 1, 1, 1]
 */
export function allGatherIntoTensorCoalesced<A extends boolean = false>(
  outputs: readonly Tensor[],
  inputs: readonly Tensor[],
  options: CollectiveOptions & AsyncOption<A> = {},
): WorkIf<A> {
  const name = 'allGatherIntoTensorCoalesced';
  const group = memberOf(name, collectiveOptions(name, options).group);
  const { parts, each, about, after } = prepared(name, outputs, inputs, group, (from, to) => {
    checkNumel(name, 'an output', to, from.numel() * group.size, `${group.size} times the input`);
    return from.storage === to.storage &&
      from.storageOffset === to.storageOffset + group.place * from.numel()
      ? from
      : apartFrom(to, from);
  });
  const { input, output } = parts[0] as CollectivePart;
  const counts = equalCounts(each * group.size, group.size);
  const call = { kind: 'allGather', input, output, counts, parts, about } as const;
  return perform(
    name,
    callSite(allGatherIntoTensorCoalesced),
    group,
    call,
    options,
    outputs,
    after,
  );
}

/**
 * {@link reduceScatterTensor} for each output and the input at its place in the list, in one call.
 * All have one dtype and are on one device. Outputs must not overlap each other, nor the input of
 * another one.
 *
 * @returns a {@link Work} if `asyncOp` is true
 * @throws ArgumentError unless the lists have equal lengths from 1; ShapeError unless each input
 * has the elements of its output times the number of ranks
 * @see PyTorch `torch.distributed._functional_collectives.reduce_scatter_tensor_coalesced`
 */
export function reduceScatterTensorCoalesced<A extends boolean = false>(
  outputs: readonly Tensor[],
  inputs: readonly Tensor[],
  options: ReduceOptions & AsyncOption<A> = {},
): WorkIf<A> {
  const name = 'reduceScatterTensorCoalesced';
  const { op: reduceOp = 'sum', group: given } = reduceOptions(name, options);
  const group = memberOf(name, given);
  const { parts, each, about, after } = prepared(name, outputs, inputs, group, (from, to) => {
    checkNumel(name, 'an input', from, to.numel() * group.size, `${group.size} times the output`);
    return apartFrom(to, from);
  });
  const { input, output } = parts[0] as CollectivePart;
  const counts = equalCounts(each * group.size, group.size);
  const call = { kind: 'reduceScatter', input, output, reduceOp, counts, parts, about } as const;
  return perform(
    name,
    callSite(reduceScatterTensorCoalesced),
    group,
    call,
    options,
    outputs,
    after,
  );
}

/** @param match - checks the sizes of a pair, and returns the input or a copy of it */
function prepared(
  name: string,
  outputs: readonly Tensor[],
  inputs: readonly Tensor[],
  group: ProcessGroup,
  match: (from: Tensor, to: Tensor) => Tensor,
): Prepared {
  checkLists(name, outputs, inputs);
  const parts: CollectivePart[] = [];
  const sizes: number[] = [];
  const copies: (() => void)[] = [];
  const [first] = outputs as readonly [Tensor];
  for (const [i, given] of outputs.entries()) {
    const from = dense(name, `input ${i}`, inputs[i] as Tensor, group);
    const [output, copyBack] = denseOutput(name, `output ${i}`, given, group);
    checkSame(name, `input ${i}`, from, first);
    checkSame(name, `output ${i}`, output, first);
    parts.push({ input: match(from, output), output });
    sizes.push(Math.min(from.numel(), output.numel()));
    if (copyBack !== undefined) copies.push(copyBack);
  }
  return {
    parts,
    each: sizes.reduce((a, b) => a + b, 0),
    about: `in parts of ${sizes.join(', ')} for each rank`,
    after: copies.length === 0 ? undefined : () => copies.forEach((copy) => void copy()),
  };
}

function checkLists(name: string, outputs: readonly Tensor[], inputs: readonly Tensor[]): void {
  const areLists = Array.isArray(outputs) && Array.isArray(inputs);
  if (areLists && outputs.length > 0 && outputs.length === inputs.length) return;
  const given = areLists
    ? `${outputs.length} outputs and ${inputs.length} inputs`
    : `${shown(outputs)} and ${shown(inputs)}`;
  throw new ArgumentError(
    `${name}: expected a list of outputs and a list of as many inputs, at least one, got ${given}`,
    { op: name },
  );
}
