/** Runs a program eagerly or compiled, and looks at all that a caller can see. */
import type { BackendName } from '../../../lib/compile/backends.js';
import { compiledAutograd } from '../../../lib/compile/index.js';
import { autograd, compile, manualSeed, noGrad, rand, Tensor, tree } from '../../../lib/index.js';
import { type Instance, instantiate, type Pass, type Program } from './program.js';

export const BACKENDS: readonly BackendName[] = [
  'eager',
  'aot_eager',
  'aot_eager_decomp_partition',
  'inductor',
];
/** The backends that compile the function, and the graphs of backward passes; null: uncompiled. */
export interface Variant {
  readonly fn: BackendName | null;
  readonly passes: BackendName | null;
}

export const EAGER: Variant = { fn: null, passes: null };

/** One that captures, and others that vary the arguments. */
const CALLS = 4;

/** What was seen of one call. */
export type Facts = Record<string, unknown>;

/** The facts of all calls; the last may be an error, after which nothing is compared. */
export function observe(program: Program, { fn, passes }: Variant, calls = CALLS): Facts[] {
  const instance = instantiate(program);
  const called = fn === null ? instance.fn : compile(instance.fn, { backend: fn });
  const run = (): Facts[] => observeCalls(program, instance, called, calls);
  if (passes === null) return run();
  return compiledAutograd.enable((module) => compile(module, { backend: passes }), run);
}

function observeCalls(
  program: Program,
  instance: Instance,
  fn: Instance['fn'],
  calls: number,
): Facts[] {
  const seen: Facts[] = [];
  for (let call = 0; call < calls; call++) {
    manualSeed(100 + call);
    const args = instance.inputs(call);
    try {
      const run = () => observeCall(instance, fn, args, program.passes);
      seen.push(call === program.withoutGrad ? noGrad(run) : run());
      instance.between(call);
    } catch (error) {
      seen.push({ error: (error as Error).constructor.name, message: (error as Error).message });
      break;
    }
  }
  return seen;
}

function observeCall(
  instance: Instance,
  fn: Instance['fn'],
  args: unknown[],
  passes: readonly Pass[],
): Facts {
  const result = fn(...args) as unknown[];
  const facts: Facts = {};
  const results = tree.tensors(result);
  const state = instance.state();
  const outer = outerTensors(state);
  const all = new Map<string, Tensor>();
  args.forEach((t, i) => t instanceof Tensor && all.set(`argument ${'abc'[i]}`, t));
  for (const [name, t] of outer) all.set(name, t);
  results.forEach((t, i) => all.set(`result ${i}`, t));
  facts.plain = result.map((each) => (typeof each === 'object' ? Array.isArray(each) : each));
  for (const [name, t] of all) describe(facts, name, t, all);
  instance.after(result);
  runPasses(facts, results, all, passes);
  for (const [name, t] of all) {
    if (passes.length > 0 && (t.isLeaf || t.retainsGrad))
      facts[`gradient of ${name}`] = t.grad === null ? null : t.grad.tolist();
    facts[`later values of ${name}`] = t.detach().tolist();
  }
  facts.keeper = (state.keeper as { factor: number } | undefined)?.factor;
  facts.factor = state.factor;
  const { scale, list } = (state.box ?? {}) as { scale?: number; list?: number[] };
  facts.box = [scale ?? null, ...(list ?? [])];
  facts.random = rand([1]).tolist(); // the state of the generator shows in its next number
  return facts;
}

function runPasses(
  facts: Facts,
  results: readonly Tensor[],
  all: ReadonlyMap<string, Tensor>,
  passes: readonly Pass[],
): void {
  const tracked = results.filter((t) => t.requiresGrad);
  if (tracked.length === 0) return;
  const weighted = tracked.map((t, i) =>
    t
      .mul(t.detach())
      .mul(i + 1)
      .sum(),
  );
  const loss = weighted.reduce((sum, t) => sum.add(t));
  const leaves = [...all].filter(([, t]) => t.isLeaf && t.requiresGrad);
  for (const [i, pass] of passes.entries()) {
    const retainGraph = i < passes.length - 1;
    if (pass === 'backward' || leaves.length === 0) {
      loss.backward({ retainGraph });
      continue;
    }
    const inputs = leaves.map(([, t]) => t);
    const found = autograd.grad(loss, inputs, { allowUnused: true, retainGraph });
    for (const [at, [name]] of leaves.entries())
      facts[`gradient of ${name} in pass ${i}`] = found[at]?.tolist() ?? null;
  }
}

function outerTensors(state: Record<string, unknown>): [string, Tensor][] {
  return Object.entries(state).flatMap(([name, value]): [string, Tensor][] => {
    if (value instanceof Tensor) return [[name, value]];
    if (name === 'box') return [['box.shift', (value as { shift: Tensor }).shift]];
    if (typeof value === 'number') return [];
    const module = value as {
      stateDict?: unknown;
      namedParameters?: () => Iterable<[string, Tensor]>;
      namedBuffers?: () => Iterable<[string, Tensor]>;
      last?: unknown;
    };
    if (
      module.namedParameters === undefined ||
      module.namedBuffers === undefined ||
      name === 'stack' ||
      name === 'chosen'
    )
      return [];
    const all = [...module.namedParameters(), ...module.namedBuffers()].map(
      ([key, t]): [string, Tensor] => [`${name}.${key}`, t],
    );
    return module.last instanceof Tensor ? [...all, [`${name}.last`, module.last]] : all;
  });
}

function describe(facts: Facts, name: string, t: Tensor, all: ReadonlyMap<string, Tensor>): void {
  const entries = [...all];
  const first = (fits: (other: Tensor) => boolean): string | undefined =>
    entries.find(([, other]) => fits(other))?.[0];
  facts[`values of ${name}`] = t.detach().tolist();
  facts[`layout of ${name}`] = [
    t.constructor.name,
    t.dtype.name,
    t.shape.join(),
    t.strides.join(),
    t.storageOffset,
  ].join(' ');
  facts[`tracking of ${name}`] = `requiresGrad ${t.requiresGrad}, leaf ${t.isLeaf}`;
  facts[`version of ${first((other) => other === t)}`] = t._version;
  facts[`identity of ${name}`] =
    `${first((other) => other === t)}, memory of ${first((other) => other.untypedStorage() === t.untypedStorage())}`;
  facts[`base of ${name}`] =
    t._base === null ? null : (first((other) => other === t._base) ?? 'inner');
}
