/** What the arguments of a train step are: models, optimizers, batches. */
import { ArgumentError } from '../core/errors.js';
import { PREPARE_CAPTURE } from '../core/prepare-capture.js';
import { Tensor } from '../core/tensor.js';
import { tensors as tensorsIn } from '../core/tree.js';
import { Module } from '../nn/module.js';
import { Optimizer } from '../optim/optimizer.js';

/** The parts of a train step's arguments. */
export interface StepArguments {
  readonly modules: readonly Module[];
  readonly optimizers: readonly Optimizer[];
  /** All other tensors. */
  readonly batch: readonly Tensor[];
}

/**
 * Finds modules, optimizers and tensors in arguments, and in arrays and plain objects among them.
 */
export function stepArguments(args: readonly unknown[]): StepArguments {
  const modules = new Set<Module>();
  const optimizers = new Set<Optimizer>();
  const visit = (value: unknown): void => {
    if (value instanceof Module) modules.add(value);
    else if (value instanceof Optimizer) optimizers.add(value as Optimizer);
    else if (Array.isArray(value)) value.forEach(visit);
    else if (isPlainObject(value)) Object.values(value).forEach(visit);
  };
  args.forEach(visit);
  return { modules: [...modules], optimizers: [...optimizers], batch: tensorsIn(args) };
}

const isPlainObject = (value: unknown): value is object =>
  typeof value === 'object' && value !== null && Object.getPrototypeOf(value) === Object.prototype;

/** The parameters of the modules, with their names. */
export function parameterNames({ modules }: StepArguments): Map<Tensor, string> {
  const names = new Map<Tensor, string>();
  for (const module of modules)
    for (const [name, p] of module.namedParameters()) if (!names.has(p)) names.set(p, name);
  return names;
}

/** The names of some parameters. */
export const namesOf = (
  params: readonly Tensor[],
  names: ReadonlyMap<Tensor, string>,
): readonly string[] => params.map((p) => names.get(p) ?? 'a parameter of no module');

/** The first names of a list, for messages. */
export const listed = (names: readonly string[]): string =>
  `${names.slice(0, 5).join(', ')}${names.length > 5 ? ', ...' : ''}`;

/**
 * Checks that each parameter has one optimizer, and makes the state of the optimizers.
 *
 * @param caller - the call that the errors name
 * @throws ArgumentError that names the parameters without an optimizer, or with two
 */
export function prepareOptimizers(caller: string, found: StepArguments): void {
  const { optimizers } = found;
  if (optimizers.length === 0) return;
  const names = parameterNames(found);
  const owners = new Map<Tensor, Optimizer[]>();
  for (const optimizer of optimizers)
    for (const { params } of optimizer.paramGroups)
      for (const p of params) owners.set(p, [...(owners.get(p) ?? []), optimizer]);
  const fail = (what: string, tensors: readonly Tensor[], advice: string): never => {
    const parameters = namesOf(tensors, names);
    throw new ArgumentError(`${caller}: ${listed(parameters)} ${what}. ${advice}`, { parameters });
  };
  const twice = [...owners].filter(([, all]) => all.length > 1).map(([p]) => p);
  if (twice.length > 0) fail('are in two optimizers', twice, 'Give each parameter to one.');
  const missing = [...names.keys()].filter((p) => p.requiresGrad && !owners.has(p));
  if (missing.length > 0)
    fail(
      'require gradients and are in no optimizer of the arguments',
      missing,
      'Pass their optimizer as an argument of the step, or call requiresGrad_(false).',
    );
  for (const optimizer of optimizers) optimizer[PREPARE_CAPTURE]();
}

/** The state tensors of optimizers. */
export function stateTensors(optimizers: readonly Optimizer[]): [Tensor, parameter: Tensor][] {
  return optimizers.flatMap((optimizer) =>
    [...optimizer.state].flatMap(([p, state]) =>
      Object.values(state).flatMap((value): [Tensor, Tensor][] =>
        value instanceof Tensor ? [[value, p]] : [],
      ),
    ),
  );
}
