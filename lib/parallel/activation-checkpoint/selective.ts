/**
 * Selective checkpoints: results of chosen ops are kept, so that the recomputation does not run
 * these ops again.
 */
import { checkFlag, optionsOf, unexpected } from '../../core/options.js';
import {
  ArgumentError,
  AutogradError,
  autograd,
  enableGrad,
  library,
  type Tensor,
} from '../../index.js';
import type { CheckpointContext } from './checkpoint.js';
import { KeptTensors } from './kept-tensors.js';

/** What happens to the results of an op. `PREFER` and `MUST` are the same in eager mode. */
export const CheckpointPolicy = {
  MUST_SAVE: 'MUST_SAVE',
  PREFER_SAVE: 'PREFER_SAVE',
  MUST_RECOMPUTE: 'MUST_RECOMPUTE',
  PREFER_RECOMPUTE: 'PREFER_RECOMPUTE',
} as const;
/** The name of a {@link CheckpointPolicy}. */
export type CheckpointPolicyName = (typeof CheckpointPolicy)[keyof typeof CheckpointPolicy];

/** In which run of a function a policy is asked. */
export interface SelectiveCheckpointContext {
  /** False in the forward pass. */
  readonly isRecompute: boolean;
}

/**
 * Chooses by the name of an op and its tensors; true means `MUST_SAVE`, false `PREFER_RECOMPUTE`.
 * It must choose the same in both runs.
 */
export type SelectiveCheckpointPolicy = (
  context: SelectiveCheckpointContext,
  op: string,
  ...inputs: readonly Tensor[]
) => CheckpointPolicyName | boolean;

/** Options of {@link createSelectiveCheckpointContexts}. */
export interface SelectiveCheckpointOptions {
  /** Whether results that are kept may be changed in place after that. Default: false. */
  allowCacheEntryMutation?: boolean;
}

/**
 * The contexts of a {@link checkpoint} that keeps the results of some ops: of those that `policy`
 * chooses, or of those in a list of names. Views and changes in place are always run again.
 *
 * @throws ArgumentError for a name that no op has, and for what is neither a function nor a list.
 * The recomputation throws AutogradError if it makes other calls than the forward pass, and
 * InPlaceError if a kept result was changed in place
 * @see PyTorch `torch.utils.checkpoint.create_selective_checkpoint_contexts`
 * @example
 * const block = (x: Tensor) => x.matmul(x.t()).sin();
 * checkpoint(block, x, { contextFn: () => createSelectiveCheckpointContexts(['matmul']) });
 */
export function createSelectiveCheckpointContexts(
  policy: SelectiveCheckpointPolicy | readonly string[],
  options: SelectiveCheckpointOptions = {},
): [forward: CheckpointContext, recompute: CheckpointContext] {
  const op = 'createSelectiveCheckpointContexts';
  const { allowCacheEntryMutation = false } = optionsOf(op, options, 'allowCacheEntryMutation');
  checkFlag(op, 'allowCacheEntryMutation', allowCacheEntryMutation);
  const choose = policyOf(op, policy);
  const results = new KeptResults(allowCacheEntryMutation);
  const context = (isRecompute: boolean): CheckpointContext => {
    const asked = { isRecompute };
    return (fn) => {
      results.restart();
      return library.withDispatchMode((call) => {
        if (call.isInPlace || call.isView) return call.run();
        const policy = policyNamed(op, choose(asked, call.op, ...call.inputs));
        if (!saves(policy)) return call.run();
        return isRecompute ? results.take(call.op) : results.keep(call.op, call.run());
      }, fn);
    };
  };
  const forward = context(false);
  policies.set(forward, (name, ...inputs) =>
    policyNamed(op, choose({ isRecompute: false }, name, ...inputs)),
  );
  return [forward, Object.assign(context(true), { release: () => results.release() })];
}

/** What a capture asks instead of running in a context of a forward pass. */
const policies = new WeakMap<CheckpointContext, RecomputePolicyOf>();

/** Chooses for an op and its tensors. @internal */
export type RecomputePolicyOf = (op: string, ...inputs: readonly Tensor[]) => CheckpointPolicyName;

/** The policy of a context that {@link createSelectiveCheckpointContexts} made. @internal */
export function policyOfContext(context: CheckpointContext): RecomputePolicyOf | undefined {
  return policies.get(context);
}

function policyOf(
  op: string,
  policy: SelectiveCheckpointPolicy | readonly string[],
): SelectiveCheckpointPolicy {
  if (typeof policy === 'function') return policy;
  if (!Array.isArray(policy))
    throw unexpected(op, 'policy', 'a function, or a list of names of ops', policy);
  const names = new Set<string>(policy);
  for (const name of names)
    if (!library.hasOp(name))
      throw new ArgumentError(
        `${op}: there is no op "${name}". library.withDispatchMode shows the names of the ops ` +
          'that a function calls.',
        { op, argument: 'policy', given: name },
      );
  return (_, name) => names.has(name);
}

/** @throws ArgumentError for what is no policy */
function policyNamed(op: string, chosen: CheckpointPolicyName | boolean): CheckpointPolicyName {
  if (typeof chosen === 'boolean')
    return chosen ? CheckpointPolicy.MUST_SAVE : CheckpointPolicy.PREFER_RECOMPUTE;
  if (Object.hasOwn(CheckpointPolicy, chosen)) return chosen;
  throw unexpected(op, 'what policy returns', 'a CheckpointPolicy or a boolean', chosen);
}

const saves = (policy: CheckpointPolicyName): boolean =>
  policy === CheckpointPolicy.MUST_SAVE || policy === CheckpointPolicy.PREFER_SAVE;

/** The results of chosen calls, by op, in the order of the calls. */
class KeptResults {
  private readonly allowsChanges: boolean;
  private readonly kept = new Map<string, KeptTensors[]>();
  private readonly taken = new Map<string, number>();

  constructor(allowsChanges: boolean) {
    this.allowsChanges = allowsChanges;
  }

  /** A run of the function begins. */
  restart(): void {
    this.taken.clear();
  }

  keep(op: string, results: readonly Tensor[]): readonly Tensor[] {
    const tensors = this.allowsChanges ? results.map((t) => t.data) : results;
    const entry = autograd.withoutSavedTensorsHooks(() =>
      enableGrad(() => new KeptTensors(tensors)),
    );
    const list = this.kept.get(op);
    if (list === undefined) this.kept.set(op, [entry]);
    else list.push(entry);
    return results;
  }

  take(op: string): readonly Tensor[] {
    const at = this.taken.get(op) ?? 0;
    this.taken.set(op, at + 1);
    const entry = this.kept.get(op)?.[at];
    if (entry === undefined)
      throw new AutogradError(
        `checkpoint: the recomputation keeps call ${at + 1} of ${op}, which the forward pass did ` +
          'not keep. The function and its policy must do the same each time that they run.',
        { op: 'checkpoint' },
      );
    return entry.get().map((t) => t.detach());
  }

  release(): void {
    for (const list of this.kept.values()) for (const entry of list) entry.release();
    this.kept.clear();
  }
}
