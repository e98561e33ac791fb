/**
 * Decides how a call of an op runs on sharded tensors: by strategies, as its decomposition, or on
 * replicated inputs. {@link propagate} caches the decisions.
 */
import { ShapeError, ShardingError } from '../../core/errors.js';
import { formatShape, sameShape } from '../../core/shape.js';
import type { LocalRun } from '../../core/sharding-rule.js';
import { planRedistribute } from '../redistribute/plan.js';
import { type DTensorSpec, placeSpec, reducedPlacements } from '../spec/spec.js';
import { type OperandSpecs, operandSpecs } from './operand-specs.js';
import type { AnyStrategy, OpCall } from './strategies.js';
import { chooseStrategies, replicateAll, runOf } from './strategies.js';

/** How a call runs on the ranks of a mesh. */
export interface Decision {
  /**
   * The spec of each input when the local op, or the decomposition, runs; null for numbers.
   */
  readonly inputs: readonly (DTensorSpec | null)[];
  /**
   * The specs of the outputs. The first is `into` if the op writes in place; empty if the op
   * decomposes, because its ops decide for themselves.
   */
  readonly outputs: readonly DTensorSpec[];
  /** One strategy for each mesh dim; empty if the op decomposes. */
  readonly strategies: readonly AnyStrategy[];
  /** The function that a rank runs on its local shards; null for the op itself. */
  readonly run: LocalRun<object> | null;
  /** Whether an input must be redistributed. */
  readonly needsRedistribute: boolean;
  /**
   * `replicate`: the op has no rule, so all inputs are replicated. `decompose`: `op.decompose` runs
   * on the sharded tensors; the caller copies the result of an in-place op.
   */
  readonly fallback: 'none' | 'replicate' | 'decompose';
}

/** @throws ShardingError if no strategy keeps the placements of a tensor that is overwritten */
export function decide(call: OpCall): Decision {
  checkInto(call);
  return call.op.sharding === null ? withoutRule(call) : byRule(call);
}

function checkInto({ op, into, outputMetas }: OpCall): void {
  const meta = outputMetas[0];
  if (into === null || meta === undefined || sameShape(into.shape, meta.shape)) return;
  throw new ShapeError(
    `${op.name}: the result has shape ${formatShape(meta.shape)} and cannot be written into ` +
      `a tensor of shape ${formatShape(into.shape)}`,
    {
      op: op.name,
      result: meta.shape,
      into: into.shape,
    },
  );
}

function byRule(call: OpCall): Decision {
  const strategies = chooseStrategies(call);
  const mayDecompose = call.op.sharding?.decomposes === true && canDecompose(call);
  if (strategies === null) {
    if (mayDecompose) return decomposed(call);
    throw cannotKeep(call);
  }
  const operands = operandSpecs(call, strategies);
  if (mayDecompose && movesShards(call, operands)) return decomposed(call);
  return decision(call, strategies, operands, 'none');
}

/** An op without a rule runs on replicated tensors. */
function withoutRule(call: OpCall): Decision {
  const whole =
    call.specs.every((spec) => spec === null || spec.isReplicated()) &&
    (call.into === null || call.into.isReplicated());
  if (!whole && canDecompose(call)) return decomposed(call);
  const isKept = (spec: DTensorSpec | null | undefined) => !spec || spec.isReplicated();
  if (!isKept(call.into) || !call.overwritten.every((i) => isKept(call.specs[i])))
    throw cannotKeep(call);
  const strategies = call.mesh.shape.map(() => replicateAll(call));
  return decision(call, strategies, operandSpecs(call, strategies), whole ? 'none' : 'replicate');
}

/** A decomposition returns new tensors, so it cannot replace an op that overwrites its inputs. */
function canDecompose({ op, overwritten }: OpCall): boolean {
  return op.decompose !== null && overwritten.length === 0;
}

/**
 * Whether an input needs an all-gather or all-to-all, which a decomposition avoids. Reductions do
 * not count, because a decomposition needs them too.
 */
function movesShards({ specs }: OpCall, { inputs }: OperandSpecs): boolean {
  return specs.some((spec, i) => {
    const target = inputs[i];
    return (
      spec &&
      target &&
      planRedistribute(spec, target).some(({ kind }) => kind === 'allGather' || kind === 'allToAll')
    );
  });
}

/** Inputs keep their sharding; Partial ones that the decomposition reads repeatedly are reduced. */
function decomposed({ op, specs, into }: OpCall): Decision {
  const first = op.sharding?.reducedFirst ?? [];
  const inputs = specs.map((spec, i) =>
    spec !== null && first.includes(i)
      ? placeSpec(spec, reducedPlacements(spec.placements), spec.order)
      : spec,
  );
  return {
    inputs,
    outputs: into === null ? [] : [into],
    strategies: [],
    run: null,
    needsRedistribute: differ(specs, inputs),
    fallback: 'decompose',
  };
}

function differ(given: OpCall['specs'], needed: OpCall['specs']): boolean {
  return given.some((spec, i) => spec !== needed[i]);
}

function decision(
  call: OpCall,
  strategies: readonly AnyStrategy[],
  { inputs, outputs }: OperandSpecs,
  fallback: Decision['fallback'],
): Decision {
  const run = runOf(strategies);
  return {
    inputs,
    outputs,
    strategies,
    run: run === 'several' ? null : run,
    needsRedistribute: differ(call.specs, inputs),
    fallback,
  };
}

function cannotKeep({ op, specs, into, overwritten }: OpCall): ShardingError {
  const given = specs.map((spec, i) => `  input ${i}: ${spec ?? 'a number'}`).join('\n');
  const written =
    into !== null
      ? `the result is written into ${into}`
      : `it overwrites input ${overwritten.join(' and input ')}`;
  const advice =
    into !== null
      ? 'An in-place op may not change placements. Use the out-of-place op, or redistribute ' +
        'the tensor first.'
      : 'The op cannot redistribute a tensor that it overwrites: redistribute it before the ' +
        'call, for instance to Replicate(), and the other inputs to the same placements.';
  const why =
    op.sharding === null
      ? 'the op has no sharding rule and only runs on replicated tensors'
      : 'no strategy keeps its placements';
  return new ShardingError(`${op.name}: ${written}, but ${why}. ${advice}\n${given}`, {
    op: op.name,
    specs,
    into,
    overwritten,
  });
}
