/** What a program says of itself that decides what a graph contains: guards compare its value. */
import { shown } from '../../core/options.js';
import { isPlain } from '../../core/plain-object.js';
import { mapLeaves } from '../../core/tree.js';
import { sameStructure } from '../autograd-capture/structure.js';
import { type Difference, propertyPath } from './facts.js';

/** The value of a function, compared by items in arrays and plain objects. */
export class StateFacts {
  readonly path: string;
  private readonly read: () => unknown;
  readonly expected: unknown;

  /** Compares with the value now. */
  constructor(path: string, read: () => unknown) {
    this.path = path;
    this.read = read;
    this.expected = mapLeaves((leaf) => leaf, read()); // a copy: the program may change its own
  }

  /** Whether there is a value to compare. */
  get isEmpty(): boolean {
    return this.expected === undefined || this.expected === null;
  }

  matches(): boolean {
    return sameStructure(this.expected, this.read());
  }

  difference(): Difference | null {
    const now = this.read();
    return sameStructure(this.expected, now) ? null : differenceAt(this.path, this.expected, now);
  }

  sentences(): string[] {
    return sentencesAt(this.path, this.expected);
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
