/** Graphs as pictures. */
import assert from 'node:assert/strict';
import { Graph, type GraphModule, type Node } from '../../../lib/compile/index.js';
import { compile, float32, nn, rand, type Tensor } from '../../../lib/index.js';

/** The graph of a function. */
function graphOf(fn: (x: Tensor) => unknown): Graph {
  let graph: Graph | undefined;
  const backend = (module: GraphModule) => {
    graph = module.graph;
    return module.forward.bind(module);
  };
  compile(fn as (x: Tensor) => Tensor, { backend })(rand([2, 3]));
  return graph as Graph;
}

const count = (svg: string, what: RegExp): number => [...svg.matchAll(what)].length;
const boxes = (svg: string): RegExpMatchArray[] => [
  ...svg.matchAll(/<title>([^<]*)<\/title><rect class="(\w+)" x="[\d.]+" y="([\d.]+)"/g),
];

/** Whether each tag that is opened is closed, the last one first. */
function assertNests(svg: string): void {
  const open: string[] = [];
  for (const [, close, name, single] of svg.matchAll(/<(\/?)(\w+)[^>]*?(\/?)>/g))
    if (close !== '') assert.equal(open.pop(), name);
    else if (single === '') open.push(name as string);
  assert.deepEqual(open, []);
}

/** A train step's worth of nodes: `layers` layers there and back, each of ten calls. */
function deepGraph(layers: number): Graph {
  const graph = new Graph();
  const meta = { shape: [2], dtype: float32, strides: [1], device: rand([1]).device };
  const metas = [{ ...meta, placements: null, requiresGrad: false }];
  let last = graph.add({ kind: 'placeholder', name: 'arg', metas });
  const saved: Node[] = [];
  const op = graphOf((x) => x.exp()).callNodes[0]?.op ?? null;
  for (let i = 0; i < 20 * layers; i++) {
    const layer = Math.floor((i < 10 * layers ? i : 20 * layers - 1 - i) / 10);
    const origin = { site: '', path: `blocks.${layer}.part${i % 2}` };
    const inputs = [last, ...(i < 10 * layers ? [] : saved.splice(-1))];
    last = graph.add({
      kind: 'call',
      name: 'exp',
      op,
      metas,
      origin,
      inputs: inputs.map((node) => ({ node, output: 0 })),
    });
    if (i < 10 * layers) saved.push(last);
  }
  graph.outputs = [{ node: last, output: 0 }];
  return graph;
}

describe('The picture of a graph', () => {
  it('has each node once, in order, with its line of text, its module and its place', () => {
    const model = new nn.Sequential(new nn.Linear(3, 4), new nn.GELU());
    const graph = graphOf((x) => model(x).sum());
    const svg = graph.toSvg();
    assertNests(svg);
    const drawn = boxes(svg).filter(([, , kind]) => kind !== 'frame');
    assert.equal(drawn.length, graph.nodes.length + 1);
    const heights = drawn.map(([, , , y]) => Number(y));
    assert.deepEqual(
      heights,
      heights.slice().sort((a, b) => a - b),
    );
    for (const line of `${graph}`.split('\n').filter((each) => each.includes('(')))
      assert.ok(svg.includes(line), line);
    assert.match(svg, /\nmodule 1\n[^<]*test\/compile\/graph\/picture\.test\.[jt]s:\d+/);
    assert.match(svg, new RegExp(`${graph.nodes.length} nodes`));
  });

  it('joins a value to each node that reads it', () => {
    const svg = graphOf((x) => x.exp().add(x.mul(2))).toSvg();
    for (const line of ['arg → exp, mul', 'exp → add', 'mul → add', 'add → return'])
      assert.ok(svg.includes(`<title>${line}</title>`), line);
  });

  it('shows what is a view, and what writes', () => {
    const svg = graphOf((x) => x.mul(2).t().add_(1)).toSvg();
    const kinds = boxes(svg).map(([, , kind]) => kind);
    assert.deepEqual(
      kinds.filter((kind) => kind !== 'frame'),
      ['input', 'compute', 'view', 'write', 'input'],
    );
  });

  it('escapes names', () => {
    const graph = graphOf((x) => x.exp());
    graph.title = 'a < b & "c"';
    const svg = graph.toSvg();
    assertNests(svg);
    assert.match(svg, /<text class="h"[^>]*>a &#60; b &#38; &#34;c&#34;: /);
  });

  it('shows characters that XML forbids as U+FFFD, and keeps all others', () => {
    const graph = graphOf((x) => x.exp());
    graph.title = 'a\u0000b\u001b[1m\u000b\ud800c\ufffe\uffffd\té😀\u0085';
    const svg = graph.toSvg();
    assertNests(svg);
    assert.ok(svg.includes('>a\ufffdb\ufffd[1m\ufffd\ufffdc\ufffd\ufffdd\té😀\u0085: '));
  });

  it('draws an empty graph', () => assertNests(new Graph().toSvg()));

  it('stays readable with thousands of nodes: those of a module share rows', () => {
    for (const layers of [40, 300, 550]) {
      const svg = deepGraph(layers).toSvg();
      assertNests(svg);
      const rows = boxes(svg).filter(([, , kind]) => kind !== 'frame');
      assert.ok(rows.length > 2 && rows.length <= 1002, `${rows.length} rows`);
      assert.ok(count(svg, />exp ×/g) > 0);
      assert.ok(svg.length < 1e6, `${svg.length} bytes`);
    }
  });
});
