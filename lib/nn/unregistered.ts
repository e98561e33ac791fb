/** A warning of modules and parameters in plain arrays, which no walk over a module finds. */
import type { AnyModule } from './module.js';
import { Parameter } from './parameter.js';

/**
 * Modules that were looked at, and attributes that were warned of, by the class of their module.
 */
const seen = new WeakSet<AnyModule>();
const warned = new WeakMap<object, Set<string>>();

/**
 * Warns once of each attribute of a class that is an array of modules or parameters, unless all of
 * them are registered below the module too.
 *
 * @see PyTorch `torch.nn.ModuleList`, which states the reason
 */
export function warnOfArrays(module: AnyModule): void {
  if (seen.has(module)) return;
  seen.add(module);
  for (const name of Object.keys(module)) {
    const value = (module as unknown as Record<string, unknown>)[name];
    if (Array.isArray(value) && value.length > 0) warnOfArray(module, name, value);
  }
}

function warnOfArray(module: AnyModule, name: string, values: readonly unknown[]): void {
  const parts = values.filter((each) => each instanceof Parameter || isModule(each));
  const { constructor } = module;
  if (parts.length === 0 || warned.get(constructor)?.has(name)) return;
  const unregistered = new Set(parts);
  for (const each of module.modules()) {
    unregistered.delete(each);
    for (const member of Object.values(each)) unregistered.delete(member);
  }
  if (unregistered.size === 0) return;
  warned.set(constructor, (warned.get(constructor) ?? new Set()).add(name));
  const [kind, list] = parts.some(isModule)
    ? ['modules', 'nn.ModuleList']
    : ['parameters', 'nn.ParameterList'];
  process.emitWarning(
    `${constructor.name}.${name} is an array of ${kind}: no optimizer, stateDict() or to(device) ` +
      `finds them. Use new ${list}(array).`,
    'ModuleWarning',
  );
}

const isModule = (value: unknown): boolean =>
  typeof value === 'function' && 'namedModules' in value;
