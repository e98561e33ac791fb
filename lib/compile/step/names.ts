/** Names of the tensors that a captured step uses: by modules, by optimizers, else none. */
import { heldOf } from '../../core/sharding.js';
import { Tensor } from '../../core/tensor.js';
import type { GuardCollector } from '../guards/guard-collector.js';

/** What a tensor is to the program. */
export type StepRole =
  | 'argument'
  | 'parameter'
  | 'buffer'
  | 'state'
  | 'rate'
  | 'gradient'
  | 'other';

/** The role of a tensor, and its name. */
export interface NamedTensor {
  readonly role: StepRole;
  readonly name: string;
  /** The tensor of the program; distributed if its local shard is the input. */
  readonly tensor: Tensor;
  /** The parameter that a state belongs to; null for other roles. */
  readonly parameter: Tensor | null;
}

interface ModuleLike {
  namedParameters(): Iterable<[string, Tensor]>;
  namedBuffers(): Iterable<[string, Tensor]>;
  namedModules(): Iterable<[string, object]>;
}

interface OptimizerLike {
  readonly paramGroups: readonly { readonly params: readonly Tensor[]; readonly lr?: unknown }[];
  readonly state: ReadonlyMap<Tensor, Readonly<Record<string, unknown>>>;
}

export class StepNames {
  private readonly named = new Map<Tensor, NamedTensor>();

  constructor(guards: GuardCollector) {
    const modules = [...guards.modulesBefore().keys()] as unknown as ModuleLike[];
    const inner = new Set(
      modules.flatMap((m) => [...m.namedModules()].flatMap(([path, each]) => (path ? [each] : []))),
    );
    const roots = modules.filter((m) => !inner.has(m));
    roots.forEach((root, i) => {
      const prefix = roots.length === 1 ? '' : `${root.constructor.name}${i}.`;
      for (const [name, t] of root.namedParameters()) this.add(t, 'parameter', prefix + name);
      for (const [name, t] of root.namedBuffers()) this.add(t, 'buffer', prefix + name);
    });
    [...guards.optimizersUsed].forEach((optimizer, i, all) => {
      const name = optimizer.constructor.name + (all.length === 1 ? '' : String(i));
      this.addOptimizer(optimizer as OptimizerLike, name);
    });
  }

  /** The name of a tensor, or of what has it as its local shard. */
  of(t: Tensor): NamedTensor | undefined {
    return this.named.get(t);
  }

  private addOptimizer({ paramGroups, state }: OptimizerLike, optimizer: string): void {
    const params = paramGroups.flatMap((group) => group.params);
    params.forEach((p, i) => {
      this.add(p, 'parameter', `${optimizer}.${i}`);
      const { name } = this.named.get(p) as NamedTensor;
      for (const [key, value] of Object.entries(state.get(p) ?? {}))
        if (value instanceof Tensor) this.add(value, 'state', `${key} of ${name}`, p);
    });
    paramGroups.forEach(({ lr }, i) => {
      if (lr instanceof Tensor) this.add(lr, 'rate', `lr of group ${i} of ${optimizer}`);
    });
  }

  private add(tensor: Tensor, role: StepRole, name: string, parameter: Tensor | null = null): void {
    for (const t of [tensor, heldOf(tensor)])
      if (!this.named.has(t)) this.named.set(t, { role, name, tensor, parameter });
  }
}
