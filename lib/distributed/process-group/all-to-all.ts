/** All-to-all collectives: every rank sends a shard to every other rank. */
import { callSite } from '../../core/call-site.js';
import type { CollectiveCall } from '../../core/collective.js';
import { ShapeError } from '../../core/errors.js';
import { checkIntegers, shown } from '../../core/options.js';
import type { Tensor } from '../../core/tensor.js';
import { memberOf } from './new-group.js';
import {
  type AsyncOption,
  apartFrom,
  type CollectiveOptions,
  checkList,
  checkSame,
  checkWritable,
  collectiveOptions,
  dense,
  denseOutput,
  equalCounts,
  joined,
  perform,
  sizesOf,
  spread,
  type WorkIf,
} from './operands.js';
import type { ProcessGroup } from './process-group.js';

/**
 * Sends `inputs[r]` to rank `r`; `outputs[r]` gets what rank `r` sends to this rank. Sizes may
 * differ, and be 0.
 *
 * @returns a {@link Work} if `asyncOp` is true
 * @see PyTorch `torch.distributed.all_to_all`
 */
export function allToAll<A extends boolean = false>(
  outputs: readonly Tensor[],
  inputs: readonly Tensor[],
  options: CollectiveOptions & AsyncOption<A> = {},
): WorkIf<A> {
  const group = memberOf('allToAll', collectiveOptions('allToAll', options).group);
  checkList('allToAll', 'inputs', inputs, group);
  checkList('allToAll', 'outputs', outputs, group);
  const input = joined('allToAll', 'inputs', inputs, group);
  for (const t of outputs) {
    checkSame('allToAll', 'outputs', t, input);
    checkWritable('allToAll', 'outputs', t);
  }
  const counts = sizesOf(outputs);
  const whole = input.newEmpty([counts.reduce((a, b) => a + b, 0)]);
  return perform(
    'allToAll',
    callSite(allToAll),
    group,
    { kind: 'allToAll', input, output: whole, counts, sendCounts: sizesOf(inputs) },
    options,
    outputs,
    () => spread(whole, outputs),
  );
}

/** Options of {@link allToAllSingle}: how dim 0 is split; evenly by default. */
export interface SplitOptions extends CollectiveOptions {
  /** Rows of `input` for each rank. */
  inputSplitSizes?: readonly number[];
  /** Rows of `output` from each rank. */
  outputSplitSizes?: readonly number[];
}

/**
 * Splits `input` along dim 0 and sends each rank a shard; `output` gets the received shards,
 * concatenated.
 *
 * @returns a {@link Work} if `asyncOp` is true
 * @throws ShapeError for split sizes that do not add up to dim 0
 * @see PyTorch `torch.distributed.all_to_all_single`
 */
export function allToAllSingle<A extends boolean = false>(
  output: Tensor,
  input: Tensor,
  options: SplitOptions & AsyncOption<A> = {},
): WorkIf<A> {
  const name = 'allToAllSingle';
  const {
    inputSplitSizes,
    outputSplitSizes,
    group: given,
  } = collectiveOptions(name, options, 'inputSplitSizes outputSplitSizes group asyncOp');
  const group = memberOf(name, given);
  const from = dense(name, 'the input', input, group);
  const [memory, after] = denseOutput(name, 'the output', output, group);
  checkSame(name, 'an output', output, input);
  const call: CollectiveCall = {
    kind: 'allToAll',
    input: apartFrom(memory, from),
    output: memory,
    sendCounts: splitCounts(name, 'inputSplitSizes', from, inputSplitSizes, group),
    counts: splitCounts(name, 'outputSplitSizes', memory, outputSplitSizes, group),
  };
  return perform(name, callSite(allToAllSingle), group, call, options, [output], after);
}

/** Elements for each rank, from rows for each rank. */
function splitCounts(
  name: string,
  what: string,
  t: Tensor,
  rows: readonly number[] | undefined,
  group: ProcessGroup,
): number[] {
  const total = t.sizes[0] ?? 1;
  if (rows === undefined) {
    if (total % group.size !== 0)
      throw new ShapeError(
        `${name}: ${total} rows cannot be split into ${group.size} equal shards. Give ${what}.`,
        { op: name, shape: t.sizes, ranks: group.size },
      );
    return equalCounts(t.numel(), group.size);
  }
  checkIntegers(name, what, rows);
  if (
    rows.length !== group.size ||
    rows.some((count) => count < 0) ||
    rows.reduce((a, b) => a + b, 0) !== total
  ) {
    throw new ShapeError(
      `${name}: expected ${what} to be ${group.size} sizes that add up to ${total}, ` +
        `got ${shown(rows)}`,
      { op: name, given: rows, shape: t.sizes },
    );
  }
  return rows.map((count) => (total === 0 ? 0 : (count * t.numel()) / total));
}
