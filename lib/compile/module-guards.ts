/**
 * Guards on what a function closes over: modules that it calls or whose training flag it reads, with their hooks and attributes, and tensors
 * that became constants of the graph. A capture is used again only while all are as they were.
 */
import { Tensor } from '../core/tensor.js';
import { moduleWatch } from '../core/watch.js';
import type { Graph } from './graph.js';
import { identityOf, tensorKey } from './guards.js';

/** What the compiler knows of a module. */
interface Watched {
  readonly trainingFlag: boolean;
  readonly hooks: Readonly<Record<string, ReadonlyMap<number, unknown>>>;
}

/** The modules that `fn` calls or asks for their training flag. */
export function watchModules<T>(fn: () => T): { result: T; modules: Set<object> } {
  const modules = new Set<object>();
  const before = moduleWatch.saw;
  moduleWatch.saw = (module) => void modules.add(module);
  try {
    return { result: fn(), modules };
  } finally {
    moduleWatch.saw = before;
  }
}

/** The training flag, hooks and attributes of a module: plain values by value, tensors by identity and metadata, the rest by identity. */
function moduleState(module: object): string {
  const { trainingFlag, hooks } = module as Watched;
  const hookIds = Object.values(hooks).map((list) => [...list.keys()].join());
  const attributes = Object.entries(module).map(([name, value]) => `${name}=${attributeKey(value)}`);
  return `${trainingFlag}|${hookIds.join('/')}|${attributes.join()}`;
}

function attributeKey(value: unknown): string {
  if (value instanceof Tensor) return `#${identityOf(value)} ${tensorKey(value)}`;
  if (typeof value === 'function' || (typeof value === 'object' && value !== null)) return `#${identityOf(value)}`;
  return `${typeof value}:${String(value)}`;
}

/** Whether everything is as it was when the graph was captured. */
export type Guard = () => boolean;

/** A guard on the modules seen during a capture and on the tensors that its graph took from outside. */
export function closureGuard(modules: Iterable<object>, graph: Graph): Guard {
  const seen = [...modules].map((module) => ({ module, state: moduleState(module) }));
  const constants = graph.nodes.flatMap(({ tensor }) => (tensor === null ? [] : [{ tensor, key: tensorKey(tensor) }]));
  return () => seen.every(({ module, state }) => moduleState(module) === state) && constants.every(({ tensor, key }) => tensorKey(tensor) === key);
}
