/** What is known of the memory of a graph's values. */
import assert from 'node:assert/strict';
import { copyGraph } from '../../../lib/compile/graph/copy.js';
import { metaOf, type Node } from '../../../lib/compile/graph/node.js';
import { Graph } from '../../../lib/compile/index.js';
import { bytesOf, Memory } from '../../../lib/compile/partition/memory.js';
import { opByName } from '../../../lib/core/op.js';
import { rand, type Tensor } from '../../../lib/index.js';

const x = (): Tensor => rand([2, 3]);
const value = (node: Node) => ({ node, output: 0 });

/** A graph with an input `a`, and calls of ops on it. */
function graphOn(): { graph: Graph; a: Node; call: (name: string, on: Node, into?: Node) => Node } {
  const graph = new Graph();
  const a = graph.add({ kind: 'placeholder', name: 'a', metas: [metaOf(x())] });
  const call = (name: string, on: Node, into?: Node): Node =>
    graph.add({
      kind: 'call',
      name,
      op: opByName(name) ?? null,
      inputs: [value(on)],
      into: into === undefined ? null : value(into),
      params: { dim0: 0, dim1: 1 },
      metas: on.metas,
    });
  return { graph, a, call };
}

describe('the memory of the values of a graph', () => {
  it('is that of the base of a view, and of what an in-place call wrote into', () => {
    const { graph, a, call } = graphOn();
    const view = call('transpose', call('detach', a));
    const written = call('sin', view, view);
    const other = call('sin', a);
    const memory = new Memory(graph);
    for (const node of [view, written]) assert.equal(memory.base(value(node)).node, a);
    assert.equal(memory.base(value(other)).node, other);
    assert.equal(memory.lastWrite(value(a)), memory.positionOf(written));
    assert.equal(memory.lastWrite(value(other)), -1);
    assert.deepEqual([memory.readsUnchanged(view), memory.readsUnchanged(other)], [false, true]);
  });

  it('is one for constants on one storage, and for inputs that are said to share it', () => {
    const { graph, a, call } = graphOn();
    const t = x();
    const [p, q] = [t, t.view([3, 2])].map((tensor) =>
      graph.add({ kind: 'constant', name: 'c', tensor, metas: [metaOf(tensor)] }),
    ) as [Node, Node];
    const b = graph.add({ kind: 'placeholder', name: 'b', metas: a.metas });
    const [write, another] = [call('sin', p, p), call('sin', a, a)];
    assert.equal(new Memory(graph).lastWrite(value(b)), -1);
    graph.shared = [[a, b]];
    for (const of of [graph, copyGraph(graph).graph]) {
      const memory = new Memory(of);
      const [place, last] = [q, b].map((node) => of.nodes[graph.nodes.indexOf(node)] as Node);
      assert.equal(memory.lastWrite(value(place as Node)), graph.nodes.indexOf(write));
      assert.equal(memory.lastWrite(value(last as Node)), graph.nodes.indexOf(another));
    }
  });

  it('is found by the tensor itself after a swap, unless a view was made before', () => {
    const { graph, a, call } = graphOn();
    const own = call('sin', a);
    const before = call('transpose', own);
    graph.add({
      kind: 'effect',
      name: 'set_',
      effect: 'set_',
      inputs: [value(own), value(a)],
      params: { counts: true },
    });
    const after = call('transpose', own);
    const memory = new Memory(graph);
    assert.deepEqual(
      [before, after].map((node) => memory.isWindow(value(node))),
      [false, true],
    );
    assert.equal(memory.of(value(own)), memory.of(value(a)));
  });

  it('has the bytes from the first element of a tensor to its last', () => {
    const sizes = [
      x(),
      x().t(),
      rand([3, 1]).expand([3, 7]),
      rand([0, 4]),
      rand([8]).slice(0, 0, 8, 2),
    ];
    assert.deepEqual(
      sizes.map((t) => bytesOf(metaOf(t))),
      [24, 24, 12, 0, 28],
    );
  });
});
