/**
 * Guards on what a function closes over: modules that it calls or whose training flag it reads, with their hooks and attributes, and tensors
 * that became constants of the graph. A capture is used again only while all are as they were.
 */
import { CompileError } from '../core/errors.js';
import type { Tensor } from '../core/tensor.js';
import { moduleWatch } from '../core/watch.js';
import type { Graph } from './graph.js';
import { identityOf, keyOf, tensorKey } from './guards.js';

/** What the compiler knows of a module. */
interface Watched {
  readonly trainingFlag: boolean;
  readonly hooks: Readonly<Record<string, ReadonlyMap<number, unknown>>>;
}

/** What is known of the modules that a function called or asked for their training flag: their state before. */
type ModuleStates = ReadonlyMap<object, string>;

/**
 * Runs `fn` and watches the modules that it calls or asks for their training flag.
 *
 * @throws CompileError if one of them changed itself, which a graph would not do again.
 */
export function watchModules<T>(fn: () => T): { result: T; modules: ModuleStates } {
  const modules = new Map<object, string>();
  const before = moduleWatch.saw;
  moduleWatch.saw = (module) => {
    if (!modules.has(module)) modules.set(module, moduleState(module));
  };
  try {
    const result = fn();
    for (const [module, state] of modules)
      if (moduleState(module) !== state)
        throw new CompileError(`${module.constructor.name} changed its own attributes while it was captured, which a graph does not do again; keep what changes in a buffer`);
    return { result, modules };
  } finally {
    moduleWatch.saw = before;
  }
}

/** The training flag, hooks and attributes of a module: values by what they hold, tensors by identity and metadata. */
function moduleState(module: object): string {
  const { trainingFlag, hooks } = module as Watched;
  const hookIds = Object.values(hooks).map((list) => [...list.keys()].join());
  const attributes = Object.entries(module).map(([name, value]) => `${name}=${keyOf(value, attributeKey)}`);
  return `${trainingFlag}|${hookIds.join('/')}|${attributes.join()}`;
}

function attributeKey(t: Tensor): string {
  return `#${identityOf(t)} ${tensorKey(t)}`;
}

/** Whether everything is as it was when the graph was captured. */
export type Guard = () => boolean;

/** A guard on the modules seen during a capture, on the tensors that its graph took from outside and on the gradients it looked at. */
export function closureGuard(modules: ModuleStates, graph: Graph, gradsRead: ReadonlyMap<Tensor, Tensor | null>): Guard {
  const seen = [...modules];
  const constants = graph.nodes.flatMap(({ kind, tensor }) => (kind !== 'constant' || tensor === null ? [] : [{ tensor, key: tensorKey(tensor) }]));
  const grads = [...gradsRead].filter(([t]) => !t.isFake);
  return () =>
    seen.every(([module, state]) => moduleState(module) === state) &&
    constants.every(({ tensor, key }) => tensorKey(tensor) === key) &&
    grads.every(([t, grad]) => t.gradTensor === grad);
}
