/** Prints a module as PyTorch does: its class, its own facts and its children. */
import type { AnyModule } from './module.js';

/**
 * The printed form, `depth` levels deep. Equal neighbours in a list are printed once with a range.
 */
export function describeModule(module: AnyModule, depth: number): string {
  const name = Object.getPrototypeOf(module).constructor.name as string;
  const facts = module.extraRepr();
  const children = depth > 0 ? [...module.namedChildren()] : [];
  if (children.length === 0)
    return facts.includes('\n') ? `${name}(\n${indent(facts)}\n)` : `${name}(${facts})`;
  const printed = children.map(([key, child]) => ({ key, text: describeModule(child, depth - 1) }));
  const lines = grouped(printed).map(({ first, last, text, count }) => {
    if (first === '') return text;
    return count === 1 ? `(${first}): ${text}` : `(${first}-${last}): ${count} x ${text}`;
  });
  return `${name}(\n${indent([...(facts === '' ? [] : [facts]), ...lines].join('\n'))}\n)`;
}

interface Group {
  first: string;
  last: string;
  text: string;
  count: number;
}

/** Merges numbered neighbours that print alike. */
function grouped(children: readonly { key: string; text: string }[]): Group[] {
  const groups: Group[] = [];
  for (const { key, text } of children) {
    const before = groups[groups.length - 1];
    if (before !== undefined && before.text === text && /^\d+$/.test(key)) {
      before.last = key;
      before.count++;
    } else groups.push({ first: key, last: key, text, count: 1 });
  }
  return groups;
}

function indent(text: string): string {
  return text.replace(/^/gm, '  ');
}
