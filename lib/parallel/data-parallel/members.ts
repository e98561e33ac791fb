/** The parameters that `DistributedDataParallel` was made for: others have no hooks. */
import { ArgumentError, type nn } from '../../index.js';

/** A property of a module that holds a parameter or a module. */
interface Member {
  readonly owner: object;
  readonly name: string;
  readonly value: object;
}

const valueOf = ({ owner, name }: Pick<Member, 'owner' | 'name'>): unknown =>
  (owner as Record<string, unknown>)[name];

export class Members {
  private readonly module: nn.AnyModule;
  private readonly parameters: ReadonlySet<nn.Parameter>;
  private members: readonly Member[];

  constructor(module: nn.AnyModule) {
    this.module = module;
    this.parameters = new Set(module.parameters());
    this.members = membersOf(module);
  }

  /**
   * Reads one property for each parameter and module, and looks closer when one has changed.
   * @throws ArgumentError if the module has a parameter that it did not have
   */
  check(): void {
    if (this.members.every((member) => valueOf(member) === member.value)) return;
    for (const [name, parameter] of this.module.namedParameters())
      if (!this.parameters.has(parameter))
        throw new ArgumentError(
          `DistributedDataParallel: the parameter "${name}" was replaced or added after the ` +
            'module was wrapped, so its gradients would not be reduced. Make a new ' +
            'DistributedDataParallel of the module.',
          { op: 'DistributedDataParallel', parameter: name },
        );
    this.members = membersOf(this.module);
  }
}

/** Names of some members are not those of properties; these are left out. */
function membersOf(root: nn.AnyModule): Member[] {
  return [...root.modules()].flatMap((owner) =>
    [...owner.namedChildren(), ...owner.namedParameters('', { recurse: false })]
      .map(([name, value]): Member => ({ owner, name, value }))
      .filter((member) => valueOf(member) === member.value),
  );
}
