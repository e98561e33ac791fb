/**
 * Collects what a capture depends on beside its arguments: modules that it calls or whose training
 * flag it reads, tensors that became constants of the graph, and `.grad`s that were null. The guard
 * made from them allows the capture only while all are unchanged.
 */
import type { Tensor } from '../../core/tensor.js';
import { isModule, listOf, sameList, Walk } from './object-walk.js';

/** Whether everything is unchanged since the capture. */
export type Guard = (inputs: readonly Tensor[]) => boolean;

/** A module's own properties, as they were before the capture. */
interface Properties {
  readonly trainingFlag: boolean;
  readonly values: ReadonlyMap<string, unknown>;
}

/** Collects during one capture. */
export class GuardCollector {
  /**
   * Modules in the order of their first use, without those inside an earlier one: the guard walks
   * into each.
   */
  private readonly roots: object[] = [];
  private readonly items: unknown[] = [];
  private readonly walk = new Walk((item) => this.items.push(item) > 0);
  private readonly properties = new Map<object, Properties>();
  private readonly constants: Tensor[] = [];
  /** What `.grad` was where it was read: of inputs, by position, and of constants. */
  private readonly grads = new Map<number | Tensor, readonly unknown[] | null>();

  /** Adds a module before its first use. */
  addModule(module: object): void {
    if (this.walk.seen.has(module)) return;
    this.roots.push(module);
    this.walk.value(module);
    for (const met of this.walk.seen.keys()) {
      if (isModule(met) && !this.properties.has(met))
        this.properties.set(met, {
          trainingFlag: met.trainingFlag,
          values: new Map(Object.entries(met)),
        });
    }
  }

  /** Adds a tensor that became a constant of the graph. */
  addConstant(constant: Tensor): void {
    this.constants.push(constant);
  }

  /** Adds a tensor whose `.grad` was read: only its metadata counts. */
  expectGrad(owner: number | Tensor, grad: Tensor | null): void {
    if (!this.grads.has(owner)) this.grads.set(owner, grad === null ? null : metadataOf(grad));
  }

  /**
   * The name of a module's property that the function changed during the capture; undefined if
   * there is none.
   */
  changed(): string | undefined {
    if (this.same([])) return undefined;
    for (const [module, before] of this.properties) {
      const names = new Set([...before.values.keys(), ...Object.keys(module)]);
      for (const name of names)
        if (!Object.is(before.values.get(name), (module as Record<string, unknown>)[name]))
          return `${module.constructor.name}.${name}`;
    }
    return `what ${this.roots.map((module) => module.constructor.name).join(', ')} holds`;
  }

  /** Restores the properties of modules, because the function is about to run again. */
  restore(): void {
    for (const [module, { trainingFlag, values }] of this.properties) {
      const target = module as Record<string, unknown>;
      if (target.trainingFlag !== trainingFlag) target.trainingFlag = trainingFlag;
      for (const name of Object.keys(target)) if (!values.has(name)) delete target[name];
      for (const [name, value] of values) if (!Object.is(target[name], value)) target[name] = value;
    }
  }

  /** The guard on everything collected. */
  guard(): Guard {
    const { constants, grads } = this;
    for (const constant of constants) this.walk.value(constant);
    return (inputs) => {
      for (const [owner, expected] of grads) {
        const { gradTensor } = typeof owner === 'number' ? (inputs[owner] as Tensor) : owner;
        if ((gradTensor === null) !== (expected === null)) return false;
        if (gradTensor !== null && !sameMetadata(gradTensor, expected as readonly unknown[]))
          return false;
      }
      return this.same(constants);
    };
  }

  private same(constants: readonly Tensor[]): boolean {
    return sameList(
      this.items,
      (walk) =>
        this.roots.every((module) => walk.seen.has(module) || walk.value(module)) &&
        constants.every((t) => walk.value(t)),
    );
  }
}

const metadataOf = (t: Tensor): readonly unknown[] => listOf((walk) => walk.argument(t));

const sameMetadata = (t: Tensor, expected: readonly unknown[]): boolean =>
  sameList(expected, (walk) => walk.argument(t));
