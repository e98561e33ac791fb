/**
 * Hooks that a captured function registers on tensors and nodes. Each run registers them on its own
 * tensors.
 */
import { AccumulateGrad } from '../../autograd/accumulate-grad.js';
import { madeHookOf } from '../../autograd/made-hooks.js';
import type { Node as TapeNode } from '../../autograd/node.js';
import type { AnyHook, HookPlace } from '../../core/backend.js';
import { CompileError } from '../../core/errors.js';
import { heldOf } from '../../core/sharding.js';
import type { GradFn, Tensor } from '../../core/tensor.js';
import { fakeTensor } from '../../eager/fake-backend.js';
import type { HookParams } from '../graph/hook-effects.js';
import type { Node } from '../graph/node.js';
import { InputNode } from './borrowed.js';
import type { Recorder } from './recorder.js';

/** A hook whose body was not traced yet. */
export interface PendingHook {
  readonly node: Node;
  readonly hook: AnyHook;
  readonly args: readonly unknown[];
  /** The leaf that a post-accumulate hook gets; null for other hooks. */
  readonly leaf: Tensor | null;
}

/** The handle that the program gets during a capture. */
export class CapturedHandle {
  private readonly recorder: Recorder;
  private pending: PendingHook | null;

  constructor(recorder: Recorder, pending: PendingHook) {
    this.recorder = recorder;
    this.pending = pending;
  }

  /** Removes the hook, which cannot have run, from the graph. */
  remove(): void {
    const { pending, recorder } = this;
    if (pending === null) return;
    if (!recorder.pendingHooks.delete(pending))
      throw new CompileError(
        'remove: the hook was registered while compile captured a function, and every run ' +
          'registers it anew. Remove it inside the function, or register it outside.',
      );
    recorder.graph.erase(pending.node);
    this.pending = null;
  }
}

/**
 * Records that a hook is registered. Null below autograd, where the tape of the capture gets it.
 */
export function recordHook(
  recorder: Recorder,
  place: HookPlace,
  hook: AnyHook,
): CapturedHandle | null {
  if (recorder.level !== 'front' && isOfCaller(place))
    recorder.unsupported('a hook was registered on a leaf or an argument');
  if (!recorder.repeatsCalls) return null;
  if (recorder.isHookBody) recorder.unsupported('a hook was registered in a hook');
  if (madeHookOf(hook)?.opaque !== undefined) recorder.unsupported('an opaque hook was registered');
  if (place.kind === 'observer') recorder.unsupported('a hook on several tensors was registered');
  const target = targetOf(recorder, place);
  const params: HookParams = {
    kind: place.kind,
    ofLeaf: place.kind !== 'accumulated' && target.node !== place.node,
    hook,
    body: null,
  };
  const pending: PendingHook = {
    node: recorder.addEffect('registerHook', { inputs: [recorder.valueOf(target)], params }),
    hook,
    args: place.kind === 'accumulated' ? [target] : argumentsOf(recorder, place, target),
    leaf: place.kind === 'accumulated' ? target : null,
  };
  recorder.pendingHooks.add(pending);
  return new CapturedHandle(recorder, pending);
}

/**
 * Whether the tensor of a hook is there before the function. The hook then gets what arrives from
 * other code, too, in turn with other hooks, and in other backward passes.
 */
function isOfCaller(place: HookPlace): boolean {
  if (place.kind === 'observer') return false;
  if (place.kind === 'accumulated') return true;
  return place.node instanceof AccumulateGrad || place.node instanceof InputNode;
}

/** The tensor by which a run finds the place of a hook. */
function targetOf(recorder: Recorder, place: HookPlace): Tensor {
  if (place.kind === 'accumulated') return place.tensor;
  if (place.node instanceof AccumulateGrad) return place.node.variable;
  const outputNr = place.kind === 'gradient' ? place.outputNr : null;
  return (
    recorder.known.tensorAt(place.node, outputNr) ??
    recorder.unsupported(`a hook was registered on ${place.node.name}, of no known tensor,`)
  );
}

/** Fake gradients; null for those of tensors that are not known. */
function argumentsOf(
  recorder: Recorder,
  place: Exclude<HookPlace, { kind: 'accumulated' }>,
  target: Tensor,
): readonly unknown[] {
  if (place.kind === 'gradient') return [gradientLike(target)];
  const node = place.node as TapeNode;
  const known = (at: GradFn, outputNr: number): Tensor | null => {
    const t = recorder.known.tensorAt(at, outputNr);
    return t === null ? null : gradientLike(t);
  };
  const outputs = Array.from({ length: node.numOutputs }, (_, i) => known(node, i));
  if (place.kind === 'before') return [outputs];
  return [
    node.edges.map((edge) => (edge === null ? null : known(edge.node, edge.outputNr))),
    outputs,
  ];
}

/** A fake gradient of a tensor. */
export function gradientLike(t: Tensor, dtype = t.dtype): Tensor {
  const { sizes: shape, device } = heldOf(t);
  const local = fakeTensor({ shape, strides: null, dtype, device });
  return t.sharding === null ? local : t.sharding.gradient(local);
}
