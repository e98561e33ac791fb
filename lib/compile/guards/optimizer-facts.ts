/**
 * What guards compare of an optimizer whose step is captured: its settings by value, and its
 * parameters, hooks and state by identity. Values of tensors, such as counts of steps, do not
 * count.
 */
import { shown } from '../../core/options.js';
import { Tensor } from '../../core/tensor.js';
import type { Difference } from './facts.js';

/** The parts of an optimizer that its step reads. */
interface OptimizerLike {
  readonly paramGroups: readonly Readonly<Record<string, unknown>>[];
  readonly state: ReadonlyMap<Tensor, Readonly<Record<string, unknown>>>;
  readonly preHooks: ReadonlyMap<number, unknown>;
  readonly postHooks: ReadonlyMap<number, unknown>;
}

/** Receives a value with its path below the optimizer; false ends the walk. */
type Visit = (value: unknown, group: number, name: string) => boolean;

export class OptimizerFacts {
  private readonly optimizer: OptimizerLike;
  private readonly name: string;
  private readonly expected: unknown[] = [];
  private readonly paths: string[] = [];

  /** `optimizer`: after the capture, which may have made its state. */
  constructor(optimizer: object) {
    this.optimizer = optimizer as OptimizerLike;
    this.name = optimizer.constructor.name;
    for (const [path, value] of this.facts()) {
      this.paths.push(path);
      this.expected.push(value);
    }
  }

  matches(): boolean {
    const { expected } = this;
    let next = 0;
    return this.walk((value) => Object.is(expected[next++], value)) && next === expected.length;
  }

  difference(): Difference | null {
    const now = this.facts();
    const before = new Map(this.paths.map((path, i) => [path, this.expected[i]]));
    for (const path of new Set([...before.keys(), ...now.keys()])) {
      if (Object.is(before.get(path), now.get(path))) continue;
      const [was, is] = [before, now].map((facts) => textOf(facts.get(path))) as [string, string];
      return { path: `${this.name}: ${path}`, before: was, now: was === is ? 'another one' : is };
    }
    return null;
  }

  sentences(): string[] {
    const { paths, expected, name } = this;
    return paths.flatMap((path, i) =>
      expected[i] instanceof Tensor ? [] : [`${name}: ${path} is ${textOf(expected[i])}`],
    );
  }

  /** What is compared, by paths. */
  private facts(): Map<string, unknown> {
    const facts = new Map<string, unknown>();
    this.walk((value, group, name) => {
      facts.set(group < 0 ? name : `group ${group}, ${name}`, value);
      return true;
    });
    return facts;
  }

  private walk(visit: Visit): boolean {
    const { paramGroups, state, preHooks, postHooks } = this.optimizer;
    if (!visit(paramGroups.length, -1, 'the number of groups')) return false;
    for (const [id, hook] of preHooks) if (!visit(hook, -1, `hook ${id} before it`)) return false;
    for (const [id, hook] of postHooks) if (!visit(hook, -1, `hook ${id} after it`)) return false;
    for (let g = 0; g < paramGroups.length; g++) {
      const group = paramGroups[g] as Readonly<Record<string, unknown>>;
      for (const name of Object.keys(group))
        if (name !== 'params' && !visitSetting(group[name], g, name, visit)) return false;
      const params = group['params'] as readonly Tensor[];
      if (!visit(params.length, g, 'the number of parameters')) return false;
      for (let i = 0; i < params.length; i++) {
        const p = params[i] as Tensor;
        if (!visit(p, g, `parameter ${i}`)) return false;
        const values = state.get(p);
        if (values === undefined) continue;
        for (const name of Object.keys(values))
          if (!visit(values[name], g, `${name} of parameter ${i}`)) return false;
      }
    }
    return true;
  }
}

function visitSetting(value: unknown, group: number, name: string, visit: Visit): boolean {
  if (!Array.isArray(value)) return visit(value, group, name);
  for (let i = 0; i < value.length; i++) if (!visit(value[i], group, `${name}[${i}]`)) return false;
  return true;
}

const textOf = (value: unknown): string =>
  value instanceof Tensor ? 'the tensor' : value === undefined ? 'nothing' : shown(value);
