/**
 * What a step makes of constants and takes for equal on all ranks, as texts: ranks that made other
 * values have other texts.
 */
import { createHash } from 'node:crypto';
import { formatShape } from '../../core/shape.js';
import type { Recorder } from '../capture/recorder.js';
import { originText } from '../graph/lint.js';
import type { Node } from '../graph/node.js';
import { printNode } from '../graph/print.js';
import { Memory, writtenValues } from '../partition/memory.js';

/** A text for each value that counted as replicated, with the place where it was made. */
export function textsOfMade(recorder: Recorder): string[] {
  const texts = recorder.origins.replicated.flatMap((value) =>
    'node' in value ? textOf(recorder, value.node) : [],
  );
  return [...new Set(texts)];
}

function textOf(recorder: Recorder, node: Node): string {
  const { metas, op } = node;
  const [meta] = metas;
  const type = meta === undefined ? '' : ` ${meta.dtype.name}${formatShape(meta.shape)}`;
  return `${op?.name ?? 'values'}${type}${originText(node)} #${digestOf(recorder, node)}`;
}

/** A digest of the calls and constants that a value follows from. */
function digestOf({ graph, origins }: Recorder, node: Node): string {
  const memory = new Memory(graph);
  const needed = new Set([node]);
  const places = new Set([memory.of({ node, output: 0 })]);
  const nodes: Node[] = [];
  for (const each of [...graph.nodes].reverse()) {
    // What writes into memory that is needed is one of the calls.
    const writes = writtenValues(each).some((value) => places.has(memory.of(value)));
    if (!needed.has(each) && !writes) continue;
    for (const value of each.reads) {
      if ('number' in value) continue;
      needed.add(value.node);
      places.add(memory.of(value));
    }
    nodes.unshift(each);
  }
  // Names count what else a rank does.
  const numbers = new Map(nodes.map(({ name }, i) => [`%${name}`, `%${i}`]));
  const hash = createHash('sha256');
  for (const each of nodes) {
    hash.update(printNode(each).replace(/%[^\s,:()]+/g, (name) => numbers.get(name) ?? name));
    if (each.tensor !== null) hash.update(String(origins.values.get(each.tensor)));
  }
  return hash.digest('hex').slice(0, 8);
}
