/** Nodes of the autograd graph: how a gradient passes from the outputs of an op to its inputs. */

import type { AnyHook, HookPlace } from '../core/backend.js';
import { callContext } from '../core/call-context.js';
import { AutogradError } from '../core/errors.js';
import { layers } from '../core/hooks.js';
import type { DrawParams } from '../core/random.js';
import type { Tensor } from '../core/tensor.js';
import type { HeldGradient } from './held-gradients.js';
import type { SavedTensor } from './saved-tensor.js';

export type Gradients = (Tensor | null)[];
export type TensorHook = (grad: Tensor) => Tensor | undefined | void;
export type NodePreHook = (
  gradOutputs: readonly (Tensor | null)[],
) => readonly (Tensor | null)[] | undefined | void;
export type NodeHook = (
  gradInputs: readonly (Tensor | null)[],
  gradOutputs: readonly (Tensor | null)[],
) => readonly (Tensor | null)[] | undefined | void;

/** What an observer of nodes learns of a backward pass. @internal */
export interface BackwardPass {
  /** Whether the pass computes the gradients that arrive at a node. */
  reaches(node: Node): boolean;
  /** Whether the pass returns the gradients that arrive at a node. */
  captures(node: Node): boolean;
  /** Whether only the sum of a tensor's gradients is seen, and not what each op adds to it. */
  readonly addsUnseen: boolean;
  /** Gradients that the rule of the running node adds to its own. */
  readonly taken: Tensor[];
  /** Whether the pass made the memory of a gradient, and at most one gradient is on it. */
  ownsAlone(g: Tensor): boolean;
}
/**
 * Runs when the gradients of a node's outputs are complete, and before its rule. It sees none of
 * them. `arrived`: whether there is one.
 *
 * @internal
 */
export type NodeObserver = (pass: BackwardPass, arrived: boolean) => void;

/** Gradients of leaves are accumulated before any other node runs. */
export const ACCUMULATE_SEQUENCE = Number.MAX_SAFE_INTEGER;
let nextSequence = 0;

/** The destination of a gradient: an output of a node. */
export interface Edge {
  node: Node;
  outputNr: number;
}

/** The state of a node in one backward pass: pending and received gradients. @internal */
export interface NodeTask {
  /** The backward pass of this task. */
  readonly run: BackwardPass;
  /** The task of an enclosing backward pass that reaches the node too. */
  readonly outer: NodeTask | null;
  /** Whether nodes free what they saved after they ran, because no other backward pass reads it. */
  readonly releases: boolean;
  /** Whether it is a root: its hooks run even if it leads to no target. */
  isRoot: boolean;
  dependencies: number;
  arrived: Gradients;
  /** Gradients of views of its outputs, which are joined before it runs. */
  held: HeldGradient[] | null;
  /** What has arrived, in 16 bits, because the rule of the node converts it. */
  low: LowGradient | null;
}

/** A gradient in 16 bits. @internal */
export interface LowGradient {
  /** The gradient, and its version when it was computed. */
  readonly of: Tensor;
  readonly version: number;
  readonly low: Tensor;
}

/** A removable registration. */
export interface HookHandle {
  /** Removes the hook. */
  remove(): void;
}

let hookId = 0;

/** @internal */
export function register<F extends AnyHook>(
  hooks: Map<number, F>,
  hook: F,
  place: HookPlace,
): HookHandle {
  const captured = layers.backend.capture?.registersHook(place, hook) ?? null;
  if (captured !== null) return captured;
  const id = hookId++;
  hooks.set(id, hook);
  return { remove: () => void hooks.delete(id) };
}

/** What decides the ops that a node runs in backward. @internal */
export interface NodeFacts {
  /** Nodes with equal facts run equal ops. */
  readonly facts: readonly unknown[];
  /** The tensors that it saved, in the order in which it unpacks them. */
  readonly saved: readonly SavedTensor[];
  /** The random states that its rule passes to ops. */
  readonly draws: readonly DrawParams[];
}

/** Base of all nodes. */
export abstract class Node {
  /** The name of the node, such as `MulBackward`. */
  abstract readonly name: string;
  /** Later nodes run first. */
  readonly sequence: number;
  /** The destination of the gradient of each input; null for inputs that need none. */
  readonly edges: (Edge | null)[];
  /** The number of gradients that it gets: one for each output of the forward op. */
  numOutputs: number;
  /** @internal of the innermost backward pass that reaches the node */
  task: NodeTask | null = null;
  /** @internal by output */
  tensorHooks: (Map<number, TensorHook> | undefined)[] | null = null;
  /** @internal */
  observers: Map<number, NodeObserver> | null = null;
  /** @internal tensors whose `.grad` is kept, by output */
  retained: (Tensor | undefined)[] | null = null;
  /** @internal */
  preHooks: Map<number, NodePreHook> | null = null;
  /** @internal */
  postHooks: Map<number, NodeHook> | null = null;
  /** Call site of the forward op, under anomaly detection. */
  forwardStack: string | undefined = undefined;
  /** @internal the modules whose forward recorded it, if modules are observed */
  readonly madeIn: readonly object[] = callContext.modules;
  /** @internal the function that the program called and that recorded it, if it is not the op */
  readonly calledBy: string | null = callContext.op;

  constructor(numOutputs: number, edges: (Edge | null)[], sequence = nextSequence++) {
    this.numOutputs = numOutputs;
    this.edges = edges;
    this.sequence = sequence;
  }

  /** Computes the gradients of the inputs from those of the outputs. */
  abstract apply(grads: Gradients): Gradients;

  /** Frees saved tensors; a second backward is then an error. */
  release(): void {}

  /**
   * What a captured backward pass depends on; null for a node that cannot be captured. @internal
   */
  facts(): NodeFacts | null {
    return null;
  }

  /**
   * Where all of the gradient of an output arrives: here, unless other outputs of the node were
   * computed from it. @internal
   */
  edgeOfAll(outputNr: number): Edge {
    return { node: this, outputNr };
  }

  /** Whether `apply` runs user code, which may keep the tensors that it gets. */
  get runsUserCode(): boolean {
    return false;
  }

  /** Whether somebody sees the gradients of its outputs or inputs. */
  get isSeen(): boolean {
    return (
      this.tensorHooks !== null ||
      this.observers !== null ||
      this.retained !== null ||
      this.preHooks !== null ||
      this.postHooks !== null
    );
  }

  /** Runs before the node with the gradients of its outputs; may return replacements. */
  registerPrehook(hook: NodePreHook): HookHandle {
    this.preHooks ??= new Map();
    return register(this.preHooks, hook, { kind: 'before', node: this });
  }

  /**
   * Runs after the node with the gradients of its inputs and outputs; may return replacements of
   * the former.
   */
  registerHook(hook: NodeHook): HookHandle {
    this.postHooks ??= new Map();
    return register(this.postHooks, hook, { kind: 'after', node: this });
  }

  /** @internal */
  addObserver(observer: NodeObserver): HookHandle {
    this.observers ??= new Map();
    return register(this.observers, observer, { kind: 'observer', node: this });
  }

  /** @internal */
  addTensorHook(outputNr: number, hook: TensorHook): HookHandle {
    this.tensorHooks ??= [];
    let hooks = this.tensorHooks[outputNr];
    if (hooks === undefined) {
      hooks = new Map();
      this.tensorHooks[outputNr] = hooks;
    }
    return register(hooks, hook, { kind: 'gradient', node: this, outputNr });
  }
}

/**
 * Replaces the history of a tensor after an in-place change. A retained gradient is then that of
 * the new values.
 */
export function changeHistory(t: Tensor, node: Node | null, outputNr: number): void {
  const before = t.node as Node | null;
  if (before?.retained?.[t.outputNr] === t) {
    before.retained[t.outputNr] = undefined;
    if (node !== null) keepGradient({ node, outputNr }, t);
  }
  t.node = node;
  t.outputNr = outputNr;
}

/** Makes backward keep what arrives at an edge in the `.grad` of a tensor. */
export function keepGradient({ node, outputNr }: Edge, t: Tensor): void {
  (node.retained ??= [])[outputNr] = t;
}

export function alreadyReleased(name: string): AutogradError {
  return new AutogradError(
    `backward through ${name} a second time: its saved tensors were freed by the first ` +
      'backward. Pass { retainGraph: true } to that one.',
    { op: name },
  );
}
