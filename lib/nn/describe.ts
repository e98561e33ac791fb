/** The printed form of a module: its class, facts, and children, as PyTorch prints it. */
import type { AnyModule } from './module.js';

export function describeModule(module: AnyModule, depth: number): string {
  const name = Object.getPrototypeOf(module).constructor.name as string;
  const children = depth > 0 ? [...module.namedChildren()] : [];
  if (children.length === 0) return `${name}(${module.extraRepr()})`;
  const lines = children.map(([key, child]) => `  (${key}): ${describeModule(child, depth - 1).replace(/\n/g, '\n  ')}`);
  return `${name}(\n${lines.join('\n')}\n)`;
}
