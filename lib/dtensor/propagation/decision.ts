/** Decides how a call of an op runs on sharded tensors, without asking what was decided before. */
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
   * What each input must become before the ranks run their part, or the op its decomposition; null
   * for numbers.
   */
  readonly inputs: readonly (DTensorSpec | null)[];
  /**
   * Of the results; none where the op runs as its decomposition, which decides for itself. In
   * place, the first is what was given.
   */
  readonly outputs: readonly DTensorSpec[];
  /** One for each mesh dim; none where the op runs as its decomposition. */
  readonly strategies: readonly AnyStrategy[];
  /** What a rank runs on its pieces; null: the op itself. */
  readonly run: LocalRun<object> | null;
  /** Whether some input must become something else. */
  readonly needsRedistribute: boolean;
  /**
   * `replicate`: it has no rule, so all inputs are replicated. `decompose`: it must run as
   * `op.decompose` on the sharded tensors; a result that was to be written in place is then to be
   * copied.
   */
  readonly fallback: 'none' | 'replicate' | 'decompose';
}

/** @throws ShardingError if what is written to would have to change its placement */
export function decide(call: OpCall): Decision {
  checkInto(call);
  return call.op.sharding === null ? withoutRule(call) : byRule(call);
}

function checkInto({ op, into, outputMetas }: OpCall): void {
  const meta = outputMetas[0];
  if (into === null || meta === undefined || sameShape(into.shape, meta.shape)) return;
  throw new ShapeError(
    `${op.name}: the result has shape ${formatShape(meta.shape)} and cannot be written into a tensor of shape ${formatShape(into.shape)}`,
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

/** On whole tensors every op runs as it is. */
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

/** A decomposition gives new tensors; it cannot stand for an op that overwrites its inputs. */
function canDecompose({ op, overwritten }: OpCall): boolean {
  return op.decompose !== null && overwritten.length === 0;
}

/**
 * Whether pieces of an input must go to other ranks: what a decomposition can do without. Terms
 * must be reduced in any case.
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

/**
 * Inputs stay as they are cut; terms that the decomposition would have to reduce again and again
 * are reduced before it.
 */
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
      ? 'An in-place op may not change placements. Use the out-of-place op, or redistribute the tensor first.'
      : 'The op cannot redistribute a tensor that it overwrites: redistribute it before the call, for instance to Replicate(), and the other inputs to the same placements.';
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
