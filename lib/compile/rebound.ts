/**
 * `markRebound`: attributes in which each call of a module finds another tensor, as `fullyShard`
 * puts whole parameters there. A capture takes these tensors for inputs.
 */
import { countChange, moduleChanges } from '../core/module-changes.js';
import { unexpected } from '../core/options.js';
import { Tensor } from '../core/tensor.js';
import { containsItself, tensors as tensorsIn } from '../core/tree.js';
import { hasDisabledHooks } from './disabled.js';
import { propertyPath } from './guards/facts.js';
import { isModule } from './guards/object-walk.js';

/** The key of a module's own set of marked names: a proxy of the module has it, too. */
const REBOUND: unique symbol = Symbol('rebound');
type Marked = { [REBOUND]?: Set<string> };

/**
 * Marks an attribute of a module as one in which each call finds another tensor. Compiled functions
 * and modules then take the tensor for an input of their graph, as an argument, and not for a
 * constant: another tensor of the same metadata needs no other graph. `fullyShard` marks the
 * parameters that it shards. A mark holds for the module, whatever the attribute is set to.
 *
 * @throws ArgumentError if `module` is no module or `name` is no string
 * @example
 * compiler.markRebound(model, 'weight');
 */
export function markRebound(module: object, name: string): void {
  if (typeof module !== 'function' || !isModule(module))
    throw unexpected('markRebound', 'module', 'an nn.Module', module);
  if (typeof name !== 'string') throw unexpected('markRebound', 'name', 'a string', name);
  const marked = (module as Marked)[REBOUND];
  if (marked === undefined)
    Object.defineProperty(module, REBOUND, { value: new Set([name]), enumerable: false });
  else marked.add(name);
  countChange(module);
}

/** A marked attribute. */
export interface ReboundPlace {
  readonly module: object;
  readonly name: string;
  readonly path: string;
}

const NONE: readonly ReboundPlace[] = [];

/**
 * The marked attributes of a module and of those below, as far as a capture of its `forward` gets:
 * not below modules whose hooks keep out of graphs.
 */
export class ReboundPlaces {
  private readonly root: object;
  private all: readonly ReboundPlace[] = NONE;
  private counted = -1;

  constructor(root: object) {
    this.root = root;
  }

  /** The attributes that hold a tensor. */
  places(): readonly ReboundPlace[] {
    const { count } = moduleChanges;
    if (this.counted !== count) {
      this.counted = count;
      const found: ReboundPlace[] = [];
      collect(this.root, this.root.constructor.name, found, new Set());
      this.all = found.length === 0 ? NONE : found;
    }
    return this.all;
  }

  /** The inputs of a call: the tensors of its arguments, then those of the attributes. */
  inputsOf(args: readonly unknown[]): Tensor[] {
    const inputs = tensorsIn(args);
    const places = this.places();
    for (let i = 0; i < places.length; i++) {
      const { module, name } = places[i] as ReboundPlace;
      const value = (module as Record<string, unknown>)[name];
      if (value instanceof Tensor) inputs.push(value);
    }
    return inputs;
  }
}

/** The inputs of a call; null if an argument contains itself. */
export function inputsOf(
  args: readonly unknown[],
  rebound: ReboundPlaces | null,
): readonly Tensor[] | null {
  try {
    return rebound?.inputsOf(args) ?? tensorsIn(args);
  } catch (error) {
    if (containsItself(args)) return null;
    throw error;
  }
}

function collect(module: object, path: string, found: ReboundPlace[], seen: Set<object>): void {
  seen.add(module);
  for (const name of (module as Marked)[REBOUND] ?? [])
    found.push({ module, name, path: propertyPath(path, name) });
  for (const [name, value] of Object.entries(module))
    if (typeof value === 'function' && isModule(value) && !seen.has(value))
      if (!hasDisabledHooks(value)) collect(value, propertyPath(path, name), found, seen);
}
