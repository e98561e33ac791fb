/**
 * What a backward pass runs: its nodes, their order and edges, hooks, and the metadata of what they
 * saved. Passes of equal signatures run equal ops, on other tensors.
 */
import { AccumulateGrad } from '../../autograd/accumulate-grad.js';
import type { EngineOptions } from '../../autograd/engine.js';
import type { MadeHook } from '../../autograd/made-hooks.js';
import type { Edge, Node } from '../../autograd/node.js';
import type { SavedTensor } from '../../autograd/saved-tensor.js';
import { InPlaceError } from '../../core/errors.js';
import type { DrawParams } from '../../core/random.js';
import { Tensor } from '../../core/tensor.js';
import { endOf } from '../../ops/as-strided.js';
import { isPlainNumber } from '../capture/number-inputs.js';
import { isDraw, type RunValue } from '../graph/effects.js';
import { config } from '../inductor.js';
import { type HookVisitor, hookFacts } from './hook-facts.js';
import { addIdentities } from './structure.js';

/** A tensor that a node saved, and what stands for it in a capture. */
export interface LiftedSave {
  readonly saved: SavedTensor;
  readonly value: Tensor;
  /**
   * What the value is a view of, if their memory was freed: a hook gives the base memory before the
   * view is used, and the view is made again then. Else null.
   */
  readonly freedBase: Tensor | null;
}

/** A plain number that a node saved. */
export interface LiftedNumber {
  readonly saved: SavedTensor;
  readonly value: Tensor;
}

/** A backward pass as data. */
export interface BackwardSignature {
  /** Compared by value. */
  readonly structure: readonly unknown[];
  /** What of it is compared by identity: hooks, and objects that nodes and hooks depend on. */
  readonly objects: ReadonlySet<object>;
  /** The tensors that the pass reads, each once: compared by metadata. */
  readonly lifts: readonly Tensor[];
  /** The random states that gradients use again. */
  readonly draws: readonly DrawParams[];
  readonly saves: readonly LiftedSave[];
  /** Tensors that have a gradient already, to which the pass may add. */
  readonly tensorsWithGrad: readonly Tensor[];
  /** The plain numbers that nodes saved. Only their dtypes are part of the structure. */
  readonly numbers: readonly LiftedNumber[];
  readonly nodes: readonly Node[];
  /** The functions that each run of the pass calls. */
  readonly calls: readonly (() => void)[];
  /** The modules whose hooks it runs. */
  readonly modules: ReadonlySet<object>;
}

/** The signature of a pass; the reason, if a node of it cannot be captured. */
export function signatureOf(
  roots: readonly Edge[],
  rootGrads: readonly Tensor[],
  options: EngineOptions,
): BackwardSignature | string {
  const walk = new GraphWalk();
  for (const { node } of roots) walk.visit(node);
  const reason = walk.finish();
  if (reason !== null) return reason;
  for (const grad of rootGrads) walk.lift(grad);
  const targets = options.captures ?? (options.only === null ? [] : [...options.only]);
  walk.structure.push(
    config.reorderForComputeCommOverlap,
    roots.map((edge) => walk.place(edge)),
    options.captures === null ? options.only === null : 'captures',
    targets.map((target) => ('node' in target ? walk.place(target) : walk.indexOf(target))),
  );
  return walk;
}

class GraphWalk implements BackwardSignature, HookVisitor {
  readonly structure: unknown[] = [];
  readonly objects = new Set<object>();
  readonly draws: DrawParams[] = [];
  readonly saves: LiftedSave[] = [];
  readonly tensorsWithGrad: Tensor[] = [];
  readonly numbers: LiftedNumber[] = [];
  readonly nodes: Node[] = [];
  readonly calls: (() => void)[] = [];
  /** The lifts with their positions. */
  private readonly found = new Map<Tensor, number>();
  private readonly indices = new Map<Node, number>();
  private readonly owners = new Map<object, number>();
  readonly modules = new Set<object>();

  get lifts(): readonly Tensor[] {
    return [...this.found.keys()];
  }

  /** Adds a value; its position is a part of the structure. */
  lift(value: RunValue): void {
    if (isDraw(value)) this.draw(value);
    if (!(value instanceof Tensor)) return;
    if (value.storage === null) {
      // A number that a hook uses is a constant of the graph.
      this.structure.push(value.dtype, value.scalarValue);
      return;
    }
    const position = this.found.get(value) ?? this.found.size;
    this.found.set(value, position);
    this.structure.push(position);
  }

  private draw(draw: DrawParams): void {
    this.structure.push(this.draws.indexOf(draw));
    this.draws.push(draw);
  }

  retained(t: Tensor): void {
    this.lift(t);
    this.describeGrad(t);
  }

  made({ owner, module, opaque }: MadeHook): unknown {
    if (module !== null) this.modules.add(module);
    const known = this.owners.get(owner) ?? this.owners.size;
    this.owners.set(owner, known);
    if (opaque === undefined) return known;
    const at = this.calls.indexOf(opaque.call);
    return [known, at < 0 ? this.calls.push(opaque.call) - 1 : at];
  }

  visit(node: Node): void {
    if (this.indices.has(node)) return;
    this.indices.set(node, this.nodes.length);
    this.nodes.push(node);
  }

  indexOf(node: Node): number {
    return this.indices.get(node) ?? -1;
  }

  place({ node, outputNr }: Edge): readonly number[] {
    return [this.indexOf(node), outputNr];
  }

  /** Describes all nodes that the visited ones lead to. The reason, if one cannot be captured. */
  finish(): string | null {
    for (let i = 0; i < this.nodes.length; i++) {
      const node = this.nodes[i] as Node;
      for (const edge of node.edges) if (edge) this.visit(edge.node);
      const reason = this.describe(node);
      if (reason !== null) return reason;
    }
    // The engine runs later nodes first.
    const order = [...this.nodes.keys()].sort(
      (a, b) => (this.nodes[a] as Node).sequence - (this.nodes[b] as Node).sequence,
    );
    this.structure.push(order);
    return null;
  }

  private describe(node: Node): string | null {
    const facts = node.facts();
    const hooks = hookFacts(node, this);
    if (facts === null) return `no graph can repeat the gradient of ${node.name}`;
    if (typeof hooks === 'string') return hooks;
    if (facts.saved.some((saved) => saved.hasHooks))
      return `savedTensorsHooks or a checkpoint keep what ${node.name} saved`;
    this.structure.push(node.constructor, node.name, node.numOutputs, facts.facts, hooks);
    addIdentities(facts.facts, this.objects);
    addIdentities(hooks, this.objects);
    this.structure.push(node.edges.map((edge) => (edge ? this.place(edge) : null)));
    this.structure.push(facts.saved.length, facts.draws.length);
    for (const draw of facts.draws) this.draw(draw);
    facts.saved.forEach((saved, i) => {
      const value = unpacked(saved, i, node);
      if (value === null) this.structure.push('overwritten');
      else this.save(saved, value);
    });
    if (node instanceof AccumulateGrad) this.describeLeaf(node);
    return null;
  }

  private save(saved: SavedTensor, value: Tensor): void {
    if (isPlainNumber(value)) {
      this.structure.push('number', value.dtype);
      this.numbers.push({ saved, value });
      return;
    }
    const { base, sizes: shape, strides, storageOffset } = value;
    const isFreed =
      base !== null &&
      base.storage === value.storage &&
      value.sharding === null &&
      !hasMemory(value);
    if (isFreed) this.structure.push(shape, strides, storageOffset);
    this.saves.push({ saved, value, freedBase: isFreed ? base : null });
    this.lift(isFreed ? base : value);
  }

  private describeLeaf({ variable: leaf, memory }: AccumulateGrad): void {
    this.lift(leaf);
    this.structure.push(memory !== null);
    if (memory !== null) this.lift(memory);
    this.structure.push(leaf.isTracked);
    this.describeGrad(leaf);
  }

  private describeGrad(t: Tensor): void {
    const { gradTensor } = t;
    this.structure.push(gradTensor === null ? null : metadata(gradTensor));
    if (gradTensor !== null) this.tensorsWithGrad.push(t);
  }
}

/**
 * What a node saved; null if it was changed since, which is an error if the node's rule reads it.
 */
function unpacked(saved: SavedTensor, i: number, node: Node): Tensor | null {
  try {
    return saved.unpack(node.name, `saved value ${i}`, node, false);
  } catch (error) {
    if (error instanceof InPlaceError) return null;
    throw error;
  }
}

function metadata(t: Tensor): readonly unknown[] {
  return [t.dtype, t.device, t.sizes, t.strides, t.sharding?.spec.id ?? null];
}

/** Whether the storage of a tensor has not been resized to less than the tensor needs. */
function hasMemory({ sizes: shape, strides, storageOffset, dtype, storage }: Tensor): boolean {
  return (
    storage === null || storage.nbytes >= endOf(shape, strides, storageOffset) * dtype.itemsize
  );
}
