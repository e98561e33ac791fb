/**
 * Graph passes with an order: each is applied to a graph once, after those that it needs, and not
 * before those that must come earlier.
 *
 * @see PyTorch `torch.distributed._spmd.graph_optimization.graph_optimization_pass`
 */
import { eliminateDeadCode } from '../compile/graph/eliminate.js';
import { Graph } from '../compile/graph/graph.js';
import { lint } from '../compile/graph/lint.js';
import { CompileError } from '../core/errors.js';
import { checkFunction, optionsOf, unexpected } from '../core/options.js';

/** What passes edit: a graph, and what makes edits take effect. */
export interface PassTarget {
  /** The graph. */
  readonly graph: Graph;
  /** Applies edits. */
  recompile(): void;
}

/** A pass: edits the graph of its first argument. */
export type GraphPass<
  M extends PassTarget = never,
  A extends readonly unknown[] = never,
  R = unknown,
> = (module: M, ...args: A) => R;

/** Options of {@link graphOptimizationPass}. */
export interface GraphPassOptions {
  /** Passes that the graph must have had before. */
  prerequisites?: readonly GraphPass[];
  /** Passes that, if the graph gets them at all, come before this one. */
  applyAfter?: readonly GraphPass[];
}

/** The passes that a graph has had, in order. */
const applied = new WeakMap<PassTarget, Set<GraphPass>>();
/** The passes that each pass may not precede. */
const earlier = new WeakMap<GraphPass, readonly GraphPass[]>();

/** Forgets which passes a graph has had. */
export function clearAppliedPasses(module: PassTarget): void {
  applied.delete(module);
}

/**
 * Makes a pass of a function. Before the function the order of passes is checked; after it the
 * graph is checked, nodes that nothing uses are removed, and the graph is recompiled.
 *
 * The passes that a graph has had are known by graph: another one starts anew.
 *
 * @throws ArgumentError for options that are no lists of functions. The pass throws ArgumentError
 * for a first argument without a graph, and CompileError if the graph has had it, if a prerequisite
 * is missing, if the graph has had a pass that must come after it, and if the edited graph cannot
 * run
 * @see PyTorch `torch.distributed._spmd.graph_optimization.graph_optimization_pass`
 * @example
 * const countCalls = graphOptimizationPass()(function countCalls(gm: IterGraphModule) {
 *   return gm.graph.callNodes.length;
 * });
 */
export function graphOptimizationPass(
  options: GraphPassOptions = {},
): <M extends PassTarget, A extends readonly unknown[], R>(
  fn: (module: M, ...args: A) => R,
) => (module: M, ...args: A) => R {
  const { prerequisites = [], applyAfter = [] } = optionsOf(
    'graphOptimizationPass',
    options,
    'prerequisites applyAfter',
  );
  for (const [name, list] of Object.entries({ prerequisites, applyAfter }))
    if (!Array.isArray(list) || !list.every((pass) => typeof pass === 'function'))
      throw unexpected('graphOptimizationPass', name, 'a list of passes', list);
  return (fn) => {
    checkFunction('graphOptimizationPass', 'fn', fn);
    const pass: typeof fn = (module, ...args) => {
      checkTarget(fn.name, module);
      const before = applied.get(module) ?? new Set();
      checkOrder(pass as GraphPass, before, prerequisites);
      const result = fn(module, ...args);
      eliminateDeadCode(module.graph);
      lint(module.graph);
      module.recompile();
      applied.set(module, before.add(pass as GraphPass));
      return result;
    };
    Object.defineProperty(pass, 'name', { value: fn.name });
    earlier.set(pass as GraphPass, applyAfter);
    return pass;
  };
}

/** @throws ArgumentError for what has no graph to edit @internal */
export function checkTarget(pass: string, module: unknown): void {
  const { graph, recompile } = (module ?? {}) as Partial<PassTarget>;
  if (!(graph instanceof Graph) || typeof recompile !== 'function')
    throw unexpected(pass, 'module', 'an IterGraphModule or a GraphModule', module);
}

function checkOrder(
  pass: GraphPass,
  before: ReadonlySet<GraphPass>,
  prerequisites: readonly GraphPass[],
): void {
  const { name } = pass;
  const fail = (text: string): never => {
    const list = [...before].map((each) => each.name).join(', ') || 'none';
    throw new CompileError(`${name}: ${text} Passes that this graph has had: ${list}.`, {
      pass: name,
    });
  };
  if (before.has(pass)) fail(`cannot apply ${name} twice to one graph.`);
  const missing = prerequisites.filter((each) => !before.has(each)).map((each) => each.name);
  if (missing.length > 0)
    fail(`${missing.join(', ')} are the prerequisites of ${name}, and must be applied first.`);
  const late = [...before].filter((each) => earlier.get(each)?.includes(pass));
  if (late.length > 0)
    fail(`${late.map((each) => each.name).join(', ')} must be applied after ${name}.`);
}
