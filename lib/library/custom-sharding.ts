/** Sharding rules that users write for their ops. */
import { ArgumentError } from '../core/errors.js';
import { Placement } from '../core/placement.js';
import type { ShardingRule, Strategy } from '../core/sharding-rule.js';
import type { Tensor } from '../core/tensor.js';
import { inputsOf, restore, type Template } from './arguments.js';

/** One way to run an op on the shards of each rank along a mesh dimension. */
export interface ShardingStrategy {
  /** One for each argument: of a tensor, of each tensor of a list, null for a plain value. */
  readonly inputs: readonly (Placement | readonly Placement[] | null)[];
  /** One for each result. */
  readonly outputs: readonly Placement[];
}

/**
 * Lists the strategies of a call, beside the one that replicates everything. Tensors have the
 * shapes of the whole tensors; only their metadata may be read.
 */
export type CustomShardingRule<A extends readonly unknown[]> = (
  ...args: A
) => readonly ShardingStrategy[];

/** The rule of an op from that of its user. */
export function shardingRuleOf<A extends readonly unknown[]>(
  op: string,
  rule: CustomShardingRule<A>,
): ShardingRule<Template> {
  return {
    strategies: (inputs, template) =>
      rule(...(restore(template, inputs) as unknown as A)).map((each) =>
        strategyOf(op, each, inputs, template),
      ),
  };
}

function strategyOf(
  op: string,
  { inputs: given, outputs }: ShardingStrategy,
  inputs: readonly Tensor[],
  template: Template,
): Strategy<Template> {
  const placements: Placement[] = [];
  template.slots.forEach((_, argument) => {
    const positions = inputsOf(template, argument);
    const own = given[argument] ?? null;
    const list = own === null ? [] : own instanceof Placement ? [own] : own;
    if (list.length !== positions.length)
      throw new ArgumentError(
        `${op}: a strategy of its sharding rule has ${list.length} placements for argument ` +
          `${argument}, which holds ${positions.length} tensors`,
        { op, argument },
      );
    positions.forEach((at, i) => {
      placements[at] = list[i] as Placement;
    });
  });
  const all = [...placements, ...outputs];
  const bad = all.find((each) => !(each instanceof Placement));
  if (placements.length !== inputs.length || bad !== undefined)
    throw new ArgumentError(
      `${op}: expected Shard(dim), Replicate() or Partial() in a strategy of its sharding rule, ` +
        `got ${String(bad)}`,
      { op },
    );
  return { inputs: placements, outputs };
}
