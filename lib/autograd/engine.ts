/**
 * The backward engine: walks the graph from the roots, accumulators first, then later nodes before
 * earlier ones. It frees a gradient after its use, if neither user code nor another node owns it.
 */
import { setAutocast } from '../core/autocast.js';
import { callContext, insideBackwardOf } from '../core/call-context.js';
import { hooks, inRegion, layers } from '../core/hooks.js';
import { closeScope, openScope, outsideScopes, type Scope, setScope } from '../core/scope-stack.js';
import { setGrad } from '../core/set-grad.js';
import type { Storage } from '../core/storage.js';
import type { Tensor } from '../core/tensor.js';
import { AccumulateGrad } from './accumulate-grad.js';
import { type Ahead, aheadOf } from './ahead.js';
import { checkAnomaly, isAnomalyEnabled } from './anomaly.js';
import { applyRule } from './apply-rule.js';
import { withCallbacks } from './backward-callbacks.js';
import { expose, exposeOne, fitReplaced } from './check-gradients.js';
import { setGradEnabled } from './grad-mode.js';
import { rowMajorCopy } from './gradient-layout.js';
import { hasAny, padded, replacedAll } from './gradient-lists.js';
import { type HeldGradient, heldGradient, joinHeld } from './held-gradients.js';
import type { BackwardPass, Edge, Gradients, Node, NodeTask } from './node.js';
import { ReadyQueue } from './ready-queue.js';
import { asSeen } from './seen-gradients.js';

export interface EngineOptions {
  retainGraph: boolean;
  createGraph: boolean;
  /** Gradients to return instead of accumulating; null accumulates into leaves. */
  captures: readonly Edge[] | null;
  /** Accumulate only into these leaves. */
  only: ReadonlySet<Node> | null;
}

/** Runs a backward pass in place of the engine; undefined if the engine has to run it. */
export type BackwardRunner = (
  roots: readonly Edge[],
  rootGrads: readonly Tensor[],
  options: EngineOptions,
) => (Tensor | null)[] | undefined;

/** What runs backward passes before the engine; see `compiledAutograd`. @internal */
export const backwardRunner: { run: BackwardRunner | null } = { run: null };

/**
 * Runs backward and returns the captured gradients (null where none arrived). It makes the
 * gradients of the roots in its own scope.
 */
export function runBackward(
  roots: readonly Edge[],
  rootGrads: () => readonly Tensor[],
  options: EngineOptions,
): (Tensor | null)[] {
  return hooks.profiler === null
    ? runPass(roots, rootGrads, options)
    : inRegion('backward', 'backward', () => runPass(roots, rootGrads, options));
}

function runPass(
  roots: readonly Edge[],
  rootGrads: () => readonly Tensor[],
  options: EngineOptions,
): (Tensor | null)[] {
  const modeBefore = setGradEnabled(options.createGraph);
  // gradients have the dtypes that mixed precision chose in forward
  const autocast = setAutocast(false);
  const scope = options.createGraph ? null : openScope(true);
  const { isBackward } = callContext;
  callContext.isBackward = true;
  const run = new BackwardRun(options, scope);
  let captured: (Tensor | null)[] | undefined;
  try {
    withCallbacks(() => {
      const grads = rootGrads();
      captured = backwardRunner.run?.(roots, grads, options);
      if (captured !== undefined) return;
      run.start(roots, grads);
      run.drain();
    });
    return captured ?? run.captured;
  } finally {
    run.leave();
    setGradEnabled(modeBefore);
    setAutocast(autocast);
    callContext.isBackward = isBackward;
    if (scope !== null) {
      setScope(scope);
      closeScope(scope, null);
    }
    if (!isBackward && !options.retainGraph) hooks.memory.endPass();
  }
}

class BackwardRun implements BackwardPass {
  readonly captured: (Tensor | null)[];
  private readonly options: EngineOptions;
  private readonly scope: Scope | null;
  private readonly met: Node[] = [];
  private readonly ready = new ReadyQueue();
  /** The nodes on the paths to targets; null if there are no targets. */
  private ahead: Ahead | null = null;
  readonly addsUnseen: boolean;
  readonly taken: Tensor[] = [];

  constructor(options: EngineOptions, scope: Scope | null) {
    this.options = options;
    this.scope = scope;
    this.addsUnseen = !options.createGraph && !isAnomalyEnabled();
    this.captured = options.captures === null ? [] : options.captures.map(() => null);
  }

  start(roots: readonly Edge[], grads: readonly Tensor[]): void {
    const { captures, only } = this.options;
    const targets = captures !== null ? new Set(captures.map((e) => e.node)) : only;
    if (targets !== null) this.ahead = aheadOf(roots, targets);
    const { met } = this;
    for (let i = 0; i < roots.length; i++) this.taskOf((roots[i] as Edge).node).isRoot = true;
    const first = met.length; // a node that is the root of several tensors starts once
    this.discoverNodes();
    for (let i = 0; i < roots.length; i++) {
      const { node, outputNr } = roots[i] as Edge;
      this.deliver(node, outputNr, grads[i] as Tensor);
    }
    for (let i = 0; i < first; i++) {
      const node = met[i] as Node;
      if ((node.task as NodeTask).dependencies === 0) this.ready.push(node);
    }
  }

  /** Finds all nodes that the roots lead to, and counts how many nodes pass gradients to each. */
  private discoverNodes(): void {
    const { met } = this;
    for (let i = 0; i < met.length; i++) {
      const { edges } = met[i] as Node;
      for (let k = 0; k < edges.length; k++) {
        const edge = edges[k];
        if (edge !== null && edge !== undefined) this.taskOf(edge.node).dependencies++;
      }
    }
  }

  private taskOf(node: Node): NodeTask {
    let { task } = node;
    if (task === null || task.run !== this) {
      task = {
        run: this,
        outer: task,
        releases: !this.options.retainGraph,
        isRoot: false,
        dependencies: 0,
        arrived: [],
        held: null,
        low: null,
      };
      node.task = task;
      this.met.push(node);
    }
    return task;
  }

  /** Restores the tasks of an enclosing backward pass. */
  leave(): void {
    for (const node of this.met) node.task = (node.task as NodeTask).outer;
  }

  drain(): void {
    for (let node = this.ready.pop(); node !== undefined; node = this.ready.pop()) this.step(node);
  }

  private step(node: Node): void {
    const task = node.task as NodeTask;
    if (task.held !== null) this.join(node, task.held);
    const buffer = task.arrived;
    task.arrived = [];
    const runs = this.ahead === null || this.ahead.receiving.has(node);
    const executes = runs && this.executes(node);
    const mark = this.scope === null ? 0 : this.scope.storages.length;
    if (node.observers !== null) this.runObservers(node, buffer);
    let incoming = asSeen(node, buffer);
    if (runs || task.isRoot) incoming = this.runTensorHooks(node, incoming);
    if (runs) this.capture(node, incoming);
    let results: Gradients = [];
    if (executes) {
      if (node.preHooks !== null) incoming = this.runPreHooks(node, incoming);
      if (hasAny(incoming)) {
        const grads = padded(incoming, node.numOutputs);
        const held = heldGradient(node, grads);
        if (held !== null) this.keepPart(node, held);
        else
          results =
            callContext.moduleObservers === 0
              ? this.apply(node, grads)
              : insideBackwardOf(node.madeIn, () =>
                  inRegion('node', node.name, () => this.apply(node, grads)),
                );
        if (node.postHooks !== null) results = this.runPostHooks(node, results, incoming);
      }
    }
    this.passOn(node, results);
    this.letGo(buffer);
    if (this.taken.length > 0) this.letGo(this.taken.splice(0));
    this.sweep(mark);
    if (task.low !== null) this.release(task.low.low);
    task.low = null;
    if (executes && !this.options.retainGraph) node.release();
  }

  /**
   * Whether a node that receives gradients passes them on. A captured node does so only if it leads
   * to another target, so that its graph stays.
   */
  private executes(node: Node): boolean {
    return (
      this.ahead === null || this.ahead.passing.has(node) || this.options.only?.has(node) === true
    );
  }

  private apply(node: Node, grads: Gradients): Gradients {
    if (node instanceof AccumulateGrad) node.createGraph = this.options.createGraph;
    const results = node.runsUserCode
      ? expose(outsideScopes(() => node.apply(expose(grads))))
      : applyRule(node, grads);
    if (isAnomalyEnabled()) checkAnomaly(node, results);
    return results;
  }

  private passOn(node: Node, results: Gradients): void {
    for (let i = 0; i < node.edges.length; i++) {
      const edge = node.edges[i];
      if (edge === null || edge === undefined) continue;
      const grad = results[i];
      if (grad !== null && grad !== undefined) this.deliver(edge.node, edge.outputNr, grad);
      const task = edge.node.task as NodeTask;
      if (--task.dependencies === 0) this.ready.push(edge.node);
    }
  }

  /** Adds a gradient to the sum that has arrived for an output of a node. */
  private deliver(node: Node, outputNr: number, grad: Tensor): void {
    const buffer = (node.task as NodeTask).arrived;
    const before = buffer[outputNr];
    const next = before === null || before === undefined ? grad : before.add(grad);
    buffer[outputNr] = next;
    next.retain();
    if (before !== null && before !== undefined) this.release(before);
  }

  /** Keeps the gradient of a part until those of the other parts have arrived. */
  private keepPart(node: Node, held: HeldGradient): void {
    const task = (node.edges[0] as Edge).node.task as NodeTask;
    task.held ??= [];
    task.held.push(held);
    held.g.retain();
  }

  private join(node: Node, held: readonly HeldGradient[]): void {
    (node.task as NodeTask).held = null;
    const mark = this.scope === null ? 0 : this.scope.storages.length;
    joinHeld(
      held,
      (g) => this.madeMemoryOf(g),
      (outputNr, g) => this.deliver(node, outputNr, g),
    );
    for (const { g } of held) this.release(g);
    this.sweep(mark);
  }

  /** Frees the intermediate results of a node's rule. */
  private sweep(mark: number): void {
    if (this.scope === null) return;
    const { storages } = this.scope;
    let kept = mark;
    for (let i = mark; i < storages.length; i++) {
      const storage = storages[i] as Storage;
      if (storage.scope !== this.scope || storage.handle === 0) continue;
      if (storage.retains === 0) storage.free('backward used it up');
      else storages[kept++] = storage;
    }
    storages.length = kept;
  }

  private letGo(grads: Gradients): void {
    for (let i = 0; i < grads.length; i++) this.release(grads[i]);
  }

  private release(grad: Tensor | null | undefined): void {
    const storage = grad?.storage;
    if (!storage) return;
    grad.retains--;
    if (storage.handle === 0) return;
    storage.retains--;
    storage.refs--;
    this.freeIfOurs(storage);
  }

  /** Frees a gradient of this run that no buffer and no user code owns. */
  private freeIfOurs(storage: Storage): void {
    if (storage.retains === 0 && storage.handle !== 0 && this.isOurs(storage))
      storage.free('backward used it up');
  }

  /** Whether this run, or the capture that it is part of, made the memory of a gradient. */
  private madeMemoryOf(g: Tensor): boolean {
    const storage = g.storage as Storage;
    const { capture } = layers.backend;
    return capture === null ? this.isOurs(storage) : capture.madeMemory(g) && !storage.exposed;
  }

  /** Whether this run made the memory, and no user code sees it. */
  private isOurs(storage: Storage): boolean {
    return this.scope !== null && storage.scope === this.scope;
  }

  ownsAlone(g: Tensor): boolean {
    const storage = g.storage as Storage;
    return this.isOurs(storage) && storage.retains <= 1;
  }

  /** Whether this pass computes the gradients that arrive at a node. */
  reaches(node: Node): boolean {
    const { task } = node;
    return (
      task?.run === this && (this.ahead === null || task.isRoot || this.ahead.receiving.has(node))
    );
  }

  captures(node: Node): boolean {
    return this.options.captures?.some((edge) => edge.node === node) === true;
  }

  private runObservers(node: Node, buffer: Gradients): void {
    if (!this.reaches(node)) return;
    const arrived = hasAny(buffer);
    for (const observer of (node.observers as NonNullable<Node['observers']>).values())
      outsideScopes(() => observer(this, arrived));
  }

  private runTensorHooks(node: Node, buffer: Gradients): Gradients {
    if (node.tensorHooks === null && node.retained === null) return buffer;
    return padded(buffer, node.numOutputs).map((grad, nr) => {
      if (grad === null) return null;
      let current = grad;
      const hooks = node.tensorHooks?.[nr];
      if (hooks !== undefined && hooks.size > 0)
        current = outsideScopes(() => this.runHooks(hooks.values(), current));
      const retained = node.retained?.[nr];
      if (retained !== undefined) retain(retained, current);
      return current;
    });
  }

  private runHooks(
    hooks: Iterable<(grad: Tensor) => Tensor | undefined | void>,
    grad: Tensor,
  ): Tensor {
    let current = exposeOne(grad);
    for (const hook of hooks) {
      current = fitReplaced(hook(current), current, 'a tensor hook');
    }
    return current;
  }

  private runPreHooks(node: Node, grads: Gradients): Gradients {
    let current: Gradients = expose(padded(grads, node.numOutputs));
    for (const hook of (node.preHooks as NonNullable<Node['preHooks']>).values()) {
      const replaced = outsideScopes(() => hook(current));
      if (replaced !== undefined)
        current = replacedAll(replaced, current, `a pre-hook of ${node.name}`);
    }
    return current;
  }

  private runPostHooks(node: Node, results: Gradients, grads: Gradients): Gradients {
    let current: Gradients = expose(results);
    expose(grads);
    for (const hook of (node.postHooks as NonNullable<Node['postHooks']>).values()) {
      const replaced = outsideScopes(() => hook(current, grads));
      if (replaced !== undefined)
        current = replacedAll(replaced, current, `a hook of ${node.name}`);
    }
    return current;
  }

  private capture(node: Node, grads: Gradients): void {
    this.options.captures?.forEach((edge, i) => {
      if (edge.node !== node) return;
      const grad = grads[edge.outputNr] ?? null;
      this.captured[i] = grad === null ? null : exposeOne(grad);
    });
  }
}

/**
 * Adds to the `.grad` of a tensor that is not a leaf. Its memory is always a copy, because the
 * gradient passes on to the tensor's inputs.
 */
function retain(t: Tensor, grad: Tensor): void {
  const before = t.gradTensor;
  setGrad(t, before === null ? rowMajorCopy(grad) : before.add(grad));
}
