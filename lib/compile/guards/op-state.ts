/** What decides the ops of a call's gradient beside its operands: guards compare it by value. */
import type { AnyOp } from '../../core/op.js';
import { shown } from '../../core/options.js';
import { isPlain } from '../../core/plain-object.js';
import { sameStructure } from '../autograd-capture/structure.js';
import { type Difference, propertyPath } from './facts.js';

export class OpState {
  private readonly op: AnyOp;
  private readonly params: object;
  /** The path of the module that calls it; empty outside of modules. */
  private readonly module: string;
  private readonly expected: unknown;

  /** As it is when the op is recorded. */
  constructor(op: AnyOp, params: object, module: string) {
    this.op = op;
    this.params = params;
    this.module = module;
    this.expected = this.now();
  }

  private now(): unknown {
    return this.op.gradientState?.(this.params);
  }

  /** Whether there is a state to compare. */
  get isEmpty(): boolean {
    return this.expected === undefined || this.expected === null;
  }

  matches(): boolean {
    return sameStructure(this.expected, this.now());
  }

  difference(): Difference | null {
    const now = this.now();
    return sameStructure(this.expected, now) ? null : differenceAt(this.path, this.expected, now);
  }

  sentences(): string[] {
    return sentencesAt(this.path, this.expected);
  }

  private get path(): string {
    const where = this.module === '' ? '' : ` of module ${this.module}`;
    return `the state of ${this.op.name}${where}`;
  }
}

const hasItems = (value: unknown): value is Record<string, unknown> =>
  isPlain(value) || Array.isArray(value);

/** Where two values differ that do: the first item, at any depth. */
function differenceAt(path: string, before: unknown, now: unknown): Difference {
  if (hasItems(before) && hasItems(now))
    for (const name of new Set([...Object.keys(before), ...Object.keys(now)]))
      if (!sameStructure(before[name], now[name]))
        return differenceAt(propertyPath(path, name), before[name], now[name]);
  return { path, before: shown(before), now: shown(now) };
}

function sentencesAt(path: string, value: unknown): string[] {
  if (!isPlain(value)) return [`${path} is ${shown(value)}`];
  return Object.entries(value).flatMap(([name, item]) =>
    sentencesAt(propertyPath(path, name), item),
  );
}
