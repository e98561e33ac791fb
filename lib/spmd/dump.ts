/** Graphs as files: text, a picture, and its description for programs that draw graphs. */
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { checkGraph } from '../compile/graph/check-graph.js';
import type { Graph } from '../compile/graph/graph.js';
import { formatMeta, type Node } from '../compile/graph/node.js';
import { drawGraph } from '../compile/graph/picture/draw.js';
import { isCollective, isWait, writes } from '../compile/graph/traits.js';
import { ArgumentError } from '../core/errors.js';
import { unexpected } from '../core/options.js';

/**
 * Writes graphs into a folder, which is made if it is missing: `name.txt`, a line a node,
 * `name.svg`, the picture of `graph.toSvg()`, and `name.dot` for Graphviz.
 *
 * @returns the paths of the files
 * @throws ArgumentError for what are no graphs, and a folder that cannot be made or written
 * @see PyTorch `torch.distributed._spmd.graph_utils.dump_graphs_to_files`
 */
export function dumpGraphsToFiles(
  graphs: Readonly<Record<string, Graph>>,
  folder: string,
): string[] {
  if (typeof graphs !== 'object' || graphs === null)
    throw unexpected('dumpGraphsToFiles', 'graphs', 'an object of graphs by name', graphs);
  for (const [name, graph] of Object.entries(graphs))
    checkGraph('dumpGraphsToFiles', graph, `graphs.${name}`);
  if (typeof folder !== 'string')
    throw unexpected('dumpGraphsToFiles', 'folder', 'the name of a folder', folder);
  makeFolder(folder);
  return Object.entries(graphs).flatMap(([name, graph]) => {
    const files = [
      [join(folder, `${name}.txt`), `${graph}\n`],
      [join(folder, `${name}.svg`), drawGraph(graph, name)],
      [join(folder, `${name}.dot`), graphToDot(graph)],
    ] as const;
    for (const [path, text] of files) inFolder(folder, () => writeFileSync(path, text));
    return files.map(([path]) => path);
  });
}

/**
 * Makes a folder and those above it, one by one: Node's recursive form never returns where a file
 * system refuses, as `/proc` does.
 */
function makeFolder(folder: string): void {
  const missing: string[] = [];
  for (let path = resolve(folder); !existsSync(path); path = dirname(path)) missing.push(path);
  inFolder(folder, () => {
    for (const path of missing.reverse())
      try {
        mkdirSync(path);
      } catch (error) {
        // Another rank may have made it meanwhile.
        if (!existsSync(path)) throw error;
      }
  });
}

/** @throws ArgumentError that names the folder if `work` fails */
function inFolder(folder: string, work: () => void): void {
  try {
    work();
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new ArgumentError(
      `dumpGraphs: expected a folder that can be made and written, got '${folder}': ${why}`,
      { folder },
    );
  }
}

/**
 * A graph in the language of Graphviz. Collectives and writes have colours of their own.
 *
 * @throws ArgumentError for what is no graph
 */
export function graphToDot(graph: Graph): string {
  checkGraph('graphToDot', graph);
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
