/**
 * The modules of compiled graphs, which run without a forward: their kernels say what they are of.
 */
import type { ProfilerEvent } from './events.js';
import type { Recorded } from './session.js';

/**
 * By command, the path of the module that a node of a compiled graph comes from. The kernels of a
 * graph have the order of its nodes.
 */
export function modulesOfPlans({ plans, commands }: Recorded): Map<number, string> {
  const paths = new Map<number, string>();
  if (plans.length === 0) return paths;
  const kernels = commands
    .filter(({ isKernel }) => isKernel)
    .map(({ command }) => command)
    .sort((a, b) => a - b);
  let at = 0;
  for (const { after, last, modules } of plans) {
    while (at < kernels.length && (kernels[at] as number) <= after) at++;
    const first = at;
    while (at < kernels.length && (kernels[at] as number) <= last) at++;
    if (at - first !== modules.length) continue;
    modules.forEach(({ path }, i) => paths.set(kernels[first + i] as number, path));
  }
  return paths;
}

/** The path of the module that a kernel is of; `inGraph` is that of its node. */
export function moduleOf(op: ProfilerEvent | null, inGraph: string | undefined): string | null {
  if (inGraph === undefined) return op?.modulePath ?? null;
  return inGraph === '' ? outermostOf(op as ProfilerEvent) : inGraph;
}

/** The outermost module that runs, or else the compiled one, which runs no forward. */
export function outermostOf(event: ProfilerEvent): string | null {
  if (event.modulePaths.length > 0) return event.modulePaths[0] as string;
  for (let each: ProfilerEvent | null = event; each !== null; each = each.parent)
    if (each.kind === 'compiled') return each.name.replace(/ backward$/, '');
  return null;
}
