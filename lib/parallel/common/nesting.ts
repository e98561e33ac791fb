/** Kinds of data parallelism do not contain each other: each would reduce or shard again. */
import { markDataParallel } from '../../distributed/index.js';
import { type nn, ShardingError } from '../../index.js';

type Kind = 'fullyShard' | 'FullyShardedDataParallel' | 'DistributedDataParallel';

const kinds = new WeakMap<nn.AnyModule, Kind>();

/** Marks a module that a kind of data parallelism was applied to. */
export function markAs(kind: Kind, module: nn.AnyModule): void {
  kinds.set(module, kind);
  markDataParallel(module);
}

/**
 * @param ignored - modules that stay as they are
 * @throws ShardingError if a module, or one below it, has another kind of data parallelism
 */
export function checkNesting(
  op: Kind,
  module: nn.AnyModule,
  ignored: ReadonlySet<unknown> = new Set(),
): void {
  const seen = new Set(ignored);
  const visit = (each: nn.AnyModule, path: string): void => {
    if (seen.has(each)) return;
    seen.add(each);
    const kind = kinds.get(each);
    if (kind !== undefined && (kind !== op || op === 'DistributedDataParallel'))
      throw nestedError(op, kind, each, path);
    for (const [name, child] of each.namedChildren())
      visit(child, path === '' ? name : `${path}.${name}`);
  };
  visit(module, '');
}

function nestedError(op: Kind, kind: Kind, module: nn.AnyModule, path: string): ShardingError {
  const { name } = module.constructor;
  const found = path === '' ? `the ${name} itself` : `"${path}" (${name})`;
  return new ShardingError(
    `${op}: expected modules without data parallelism of another kind, got ${found} ` +
      `with ${kind}. ${adviceOf(op, kind)}`,
    { op, module: path, kind },
  );
}

function adviceOf(op: Kind, kind: Kind): string {
  if (kind === 'DistributedDataParallel')
    return `Give the module in it, its property module, to ${op}.`;
  if (op !== 'DistributedDataParallel') return 'Use one of both for the outer modules and these.';
  const replicas =
    kind === 'fullyShard' ? 'pass it a mesh of two dims' : 'its strategy HYBRID_SHARD is';
  return `Leave ${op} out: ${kind} reduces gradients; for replicas ${replicas}.`;
}
