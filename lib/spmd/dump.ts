/** Graphs as files: text, and a picture's description. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Graph } from '../compile/graph/graph.js';
import { formatMeta, type Node } from '../compile/graph/node.js';
import { isWait, writes } from '../compile/graph/traits.js';
import { isCollective } from './comm-block.js';

/**
 * Writes graphs into a folder, which is made if it is missing: `name.txt`, a line a node, and
 * `name.dot`, which Graphviz and most editors draw.
 *
 * @returns the paths of the files
 * @see PyTorch `torch.distributed._spmd.graph_utils.dump_graphs_to_files`
 */
export function dumpGraphsToFiles(
  graphs: Readonly<Record<string, Graph>>,
  folder: string,
): string[] {
  mkdirSync(folder, { recursive: true });
  return Object.entries(graphs).flatMap(([name, graph]) => {
    const files = [
      [join(folder, `${name}.txt`), `${graph}\n`],
      [join(folder, `${name}.dot`), graphToDot(graph)],
    ] as const;
    for (const [path, text] of files) writeFileSync(path, text);
    return files.map(([path]) => path);
  });
}

/** A graph in the language of Graphviz. Collectives and writes have colours of their own. */
export function graphToDot(graph: Graph): string {
  const quoted = (text: string): string => JSON.stringify(text);
  const lines = graph.nodes.flatMap((node) => [
    `  ${quoted(node.name)} [label=${quoted(labelOf(node))} fillcolor=${quoted(colourOf(node))}];`,
    ...node.reads.flatMap((value) =>
      'node' in value ? [`  ${quoted(value.node.name)} -> ${quoted(node.name)};`] : [],
    ),
  ]);
  return [
    'digraph {',
    '  node [shape=box style="rounded,filled" fontname="sans-serif"];',
    ...lines,
    '}',
    '',
  ].join('\n');
}

const labelOf = (node: Node): string =>
  [node.name, node.metas.map(formatMeta).join(', ')].filter((line) => line !== '').join('\n');

function colourOf(node: Node): string {
  if (isCollective(node)) return '#f4a261';
  if (isWait(node)) return '#f9d8b8';
  if (node.kind === 'placeholder') return '#e9ecef';
  return writes(node) ? '#a8dadc' : '#ffffff';
}
