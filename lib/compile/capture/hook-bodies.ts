/**
 * Traces the bodies of hooks. When the captured function has ended, so that its variables have
 * their last values, the body of every hook runs once on fake gradients. If it uses tensors of the
 * capture, its ops become a graph that gets these tensors at every run; else each run registers the
 * hook as it is, which then reads values, counts and logs as it does eagerly.
 */
import { noGrad } from '../../autograd/grad-mode.js';
import type { AnyHook } from '../../core/backend.js';
import { CompileError } from '../../core/errors.js';
import { layers } from '../../core/hooks.js';
import type { Tensor } from '../../core/tensor.js';
import { map as mapTensors, tensors as tensorsIn } from '../../core/tree.js';
import { GraphModule } from '../graph/graph-module.js';
import type { HookBody } from '../graph/hook-effects.js';
import { metaOf, type Value } from '../graph/node.js';
import { PLACE } from './functions.js';
import { gradientLike, type PendingHook } from './hooks.js';
import { recording } from './levels.js';
import { Recorder } from './recorder.js';

/** Traces the bodies of the hooks that a function registered and did not remove. */
export function traceHooks(recorder: Recorder): void {
  for (const pending of recorder.pendingHooks) {
    const { node } = pending;
    const assigned = recorder.guards.closures.assignedIn(pending.hook);
    // The trial would assign once more, and nothing could undo that.
    if (assigned !== null) recorder.unsupported(`a hook assigns to ${assigned}, a variable`);
    const inner = noGrad(() => new HookRecorder(recorder, pending.leaf));
    const body = bodyOf(inner, pending);
    const changesModules = recorder.attributes.undo(recorder);
    if (!inner.lifted.some(({ tensor }) => !recorder.isConstant(tensor))) continue;
    if (changesModules || inner.lifted.some(({ tensor }) => recorder.attributes.has(tensor)))
      recorder.unsupported('a hook uses, or changes, an attribute of a module');
    if (layers.entry !== layers.autograd)
      recorder.unsupported('a hook that uses tensors of the function was registered in autocast');
    node.params = { ...node.params, hook: null, body };
    recorder.addEffect('bindHook', {
      inputs: [{ node, output: 0 }, ...inner.lifted.map(({ value }) => value)],
    });
  }
  recorder.pendingHooks.clear();
}

function bodyOf(inner: HookRecorder, { hook, args }: PendingHook): HookBody {
  const flat = args.flat() as (Tensor | null)[];
  for (const t of flat) if (t !== null) inner.argument(t);
  const result = noGrad(() => recording(inner, () => called(inner, hook, args)));
  inner.endInOuter();
  inner.graph.outputs = tensorsIn(result).map((t) => inner.valueOf(t));
  return {
    module: new GraphModule(inner.graph),
    given: flat.map((t) => t !== null),
    result: mapTensors(() => PLACE, result),
  };
}

function called(inner: HookRecorder, hook: AnyHook, args: readonly unknown[]): unknown {
  try {
    return hook(...(args as never[]));
  } catch (error) {
    if (error instanceof CompileError) throw error;
    return inner.unsupported(`a hook threw ${String(error)} when it was tried`);
  }
}

/** Records the body of a hook. What the outer capture knows is lifted to arguments. */
class HookRecorder extends Recorder {
  override readonly isHookBody = true;
  readonly lifted: { readonly tensor: Tensor; readonly value: Value }[] = [];
  private readonly outer: Recorder;
  /** The leaf whose gradient was accumulated before the hook, so that it has one. */
  private readonly accumulated: Tensor | null;

  constructor(outer: Recorder, accumulated: Tensor | null) {
    super(outer.guards, 'front', outer.draws);
    this.outer = outer;
    this.accumulated = accumulated;
  }

  /** Hands over to the outer capture what ends with it. */
  endInOuter(): void {
    this.outer.known.absorb(this.known);
  }

  /** Defines an argument of the hook. */
  argument(t: Tensor): Value {
    const node = this.graph.add({ kind: 'placeholder', name: 'arg', metas: [metaOf(t)] });
    this.define(t, { node, output: 0 });
    return { node, output: 0 };
  }

  override valueOf(t: Tensor): Value {
    if (t.storage === null || this.known.has(t)) return super.valueOf(t);
    const value = this.outer.valueOf(t);
    this.lifted.push({ tensor: t, value });
    return this.argument(t);
  }

  override readsGrad(t: Tensor): void {
    if (this.assignedGrads.has(t) || (this.known.has(t) && t.gradTensor !== null)) return;
    if (t !== this.accumulated) this.unsupported('the .grad of another tensor was read in a hook');
    this.assignedGrads.add(t);
    t.gradTensor = gradientLike(t, t.gradDtype);
    const node = this.addEffect('readGrad', {
      inputs: [this.valueOf(t)],
      metas: [metaOf(t.gradTensor)],
    });
    this.define(t.gradTensor, { node, output: 0 });
  }

  override unsupported(what: string, instead?: string): never {
    return this.outer.unsupported(what, instead);
  }
}
