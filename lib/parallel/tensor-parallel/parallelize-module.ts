/** Applies parallel styles to the modules of a model, by a plan of paths. */
import { optionsOf, unexpected } from '../../core/options.js';
import { type DeviceMesh, getCurrentMesh } from '../../distributed/index.js';
import { ArgumentError, type nn, ShardingError } from '../../index.js';
import { requireModule } from './distribute-module.js';
import { ParallelStyle, type StyleOptions } from './parallel-style.js';

/**
 * One style for the module itself, or styles by dotted paths. `*`, `?` and `[qkv]` are wildcards
 * within one name.
 */
export type ParallelizePlan = ParallelStyle | Readonly<Record<string, ParallelStyle>>;

/** Options of {@link parallelizeModule}. */
export type ParallelizeOptions = StyleOptions;

/** A module that a path of the plan matches. */
interface Found {
  readonly path: string;
  readonly module: nn.AnyModule;
}

/** The end of a path that matches nothing: the modules without such a child. */
interface DeadEnd {
  readonly part: string;
  readonly at: readonly Found[];
}

/** The style of each parallelized module, so that no module gets hooks twice. */
const styles = new WeakMap<nn.AnyModule, ParallelStyle>();

/**
 * Applies parallel styles to modules, in place: parameters become distributed tensors, and hooks
 * bring inputs and results into their layouts. Returns the module. All ranks of the mesh call it;
 * the values of the first rank win, unless `srcDataRank` is null.
 *
 * Paths are those of `namedModules()`, with the wildcards `*`, `?` and `[qkv]` within one name: `{
 * 'blocks.*.mlp.0': ColwiseParallel() }`. A path that matches nothing causes a warning with the
 * existing names. Parameters remain the same objects, so an existing optimizer still updates them,
 * unless it has stepped: then its state has the whole shapes. A parameter that several modules
 * share is distributed once; styles that disagree about its placement are an error.
 *
 * @param mesh - a mesh of one dim, or a slice such as `mesh.get('tp')`; if undefined, that of
 * `mesh.run` around the call
 * @throws ShardingError for a mesh of more dims, two styles for one module, or a module that the
 * style does not support
 * @see PyTorch `torch.distributed.tensor.parallel.parallelize_module`
 * @example
 * parallelizeModule(model, mesh, { 0: ColwiseParallel(), 1: RowwiseParallel() });
 * model(x).shape; // [4, 8]
 */
export function parallelizeModule<M extends nn.AnyModule>(
  module: M,
  mesh: DeviceMesh | undefined = getCurrentMesh('parallelizeModule'),
  plan: ParallelizePlan,
  options: ParallelizeOptions = {},
): M {
  const op = 'parallelizeModule';
  requireModule(op, module);
  const { srcDataRank = 0 } = optionsOf(op, options, 'srcDataRank');
  checkMesh(op, mesh);
  const chosen =
    plan instanceof ParallelStyle
      ? [[{ path: '', module }, plan] as const]
      : chosenStyles(op, module, plan);
  const fresh = new Map<nn.AnyModule, readonly [Found, ParallelStyle]>();
  for (const [found, style] of chosen) {
    const before = fresh.get(found.module)?.[1] ?? styles.get(found.module);
    // A module at two paths with one style gets its hooks once.
    if (before === style && fresh.has(found.module)) continue;
    if (before !== undefined) throw twice(op, found, before, style);
    fresh.set(found.module, [found, style]);
  }
  for (const [each, [{ path }, style]] of fresh) {
    style._apply(each, mesh, { srcDataRank, path });
    styles.set(each, style);
  }
  return module;
}

function checkMesh(op: string, mesh: DeviceMesh): void {
  if (typeof mesh !== 'object' || mesh === null || !Array.isArray(mesh.shape))
    throw unexpected(op, 'mesh', 'a DeviceMesh', mesh);
  if (mesh.ndim === 1) return;
  const name = mesh.meshDimNames?.at(-1);
  const advice =
    name === undefined
      ? 'Create it with meshDimNames, and pass a slice: mesh.get(name).'
      : `Pass a slice: mesh.get('${name}').`;
  throw new ShardingError(`${op}: expected a mesh of one dim, got ${mesh}. ${advice}`, {
    op,
    shape: mesh.shape,
  });
}

function twice(
  op: string,
  { path, module }: Found,
  before: ParallelStyle,
  style: ParallelStyle,
): ShardingError {
  const names = [before, style].map((each) => each.constructor.name);
  return new ShardingError(
    `${op}: ${module.constructor.name} at "${path}" has a style already (${names[0]}) and ` +
      `would get another (${names[1]}). A module has one style: change the plan, or apply the ` +
      'second style to a module around it.',
    { op, path },
  );
}

function chosenStyles(
  op: string,
  root: nn.AnyModule,
  plan: Readonly<Record<string, ParallelStyle>>,
): (readonly [Found, ParallelStyle])[] {
  if (typeof plan !== 'object' || plan === null)
    throw unexpected(op, 'plan', 'a style, or styles by module path', plan);
  return Object.entries(plan).flatMap(([pattern, style]) => {
    if (!(style instanceof ParallelStyle))
      throw new ArgumentError(
        `${op}: expected the plan to have a style at "${pattern}", such as ColwiseParallel()`,
        { op, path: pattern },
      );
    const { found, deadEnd } = matching(root, pattern);
    if (deadEnd !== null && found.length === 0) warnUnmatched(op, pattern, deadEnd);
    return found.map((each) => [each, style] as const);
  });
}

function matching(
  root: nn.AnyModule,
  pattern: string,
): { found: Found[]; deadEnd: DeadEnd | null } {
  let found: Found[] = [{ path: '', module: root }];
  for (const part of pattern === '' ? [] : pattern.split('.')) {
    const named = nameMatcher(part);
    const next = found.flatMap(({ path, module }) =>
      [...module.namedChildren()]
        .filter(([name]) => named.test(name))
        .map(([name, child]) => ({ path: path === '' ? name : `${path}.${name}`, module: child })),
    );
    if (next.length === 0) return { found: [], deadEnd: { part, at: found } };
    found = next;
  }
  return { found, deadEnd: null };
}

/** Wildcards of Python's fnmatch: `*`, `?`, `[qkv]` and `[!qkv]`. */
function nameMatcher(part: string): RegExp {
  const tokens = part.match(/\[!?[^\]]+\]|[\s\S]/g) ?? [];
  const source = tokens.map((token) => {
    if (token === '*') return '.*';
    if (token === '?') return '.';
    if (token.length === 1) return token.replace(/[\\^$+.()|[\]{}]/, '\\$&');
    return token.replace('[!', '[^').replaceAll('\\', '\\\\');
  });
  return new RegExp(`^${source.join('')}$`);
}

function warnUnmatched(op: string, pattern: string, { part, at }: DeadEnd): void {
  const children = [
    ...new Set(at.flatMap(({ module }) => [...module.namedChildren()].map(([name]) => name))),
  ];
  const where =
    at.length === 1
      ? `"${at[0]?.path}"`
      : `the ${at.length} modules before it, such as "${at[0]?.path}",`;
  const there =
    children.length === 0
      ? 'has no modules below it'
      : `has ${nearestFirst(part, children).join(', ')}`;
  process.emitWarning(
    `${op}: "${pattern}" in the plan matches no module, so it does nothing: there is no ` +
      `"${part}"; ${where} ${there}.`,
    'ParallelizeWarning',
  );
}

const MOST_NAMES = 12;

/** Sorts names by the number of pairs of letters in common with `written`. */
function nearestFirst(written: string, names: readonly string[]): string[] {
  const pairs = (name: string): Set<string> =>
    new Set(
      Array.from({ length: name.length + 1 }, (_, i) => ` ${name} `.slice(i, i + 2).toLowerCase()),
    );
  const wanted = pairs(written);
  const likeness = (name: string): number =>
    [...pairs(name)].filter((pair) => wanted.has(pair)).length / (name.length + 1);
  const sorted = [...names].sort((a, b) => likeness(b) - likeness(a));
  return sorted.length > MOST_NAMES ? [...sorted.slice(0, MOST_NAMES), '…'] : sorted;
}
