/** A call and its decomposition compute the same. */
import assert from 'node:assert/strict';
import { GraphModule } from '../../../lib/compile/graph/graph-module.js';
import { lint } from '../../../lib/compile/graph/lint.js';
import { metaOf } from '../../../lib/compile/graph/node.js';
import { defaultPartition, Graph } from '../../../lib/compile/index.js';
import { decompose } from '../../../lib/compile/passes/decompose.js';
import { belowDTensor, dispatch } from '../../../lib/core/dispatch.js';
import { type AnyOp, allOps } from '../../../lib/core/op.js';
import { bfloat16, nn, noGrad, rand, type Tensor } from '../../../lib/index.js';
import { jointOf, opsOf, runPartition } from '../partition/joint-graphs.js';

function assertClose(actual: Tensor, expected: Tensor, rtol = 1e-4, atol = 1e-5): void {
  assert.equal(actual.dtype, expected.dtype);
  assert.ok(actual.allclose(expected, { rtol, atol, equalNan: true }), `${actual}\n${expected}`);
}

/** A graph of one call. */
function graphOf(op: AnyOp, inputs: readonly Tensor[], params: object): Graph {
  const graph = new Graph();
  const metas = dispatch(op, inputs, params).map(metaOf);
  const operands = inputs.map((t) =>
    t.storage === null
      ? { number: t }
      : { node: graph.add({ kind: 'placeholder', name: 'x', metas: [metaOf(t)] }), output: 0 },
  );
  const node = graph.add({ kind: 'call', name: op.name, op, inputs: operands, params, metas });
  graph.outputs = metas.map((_, output) => ({ node, output }));
  return graph;
}

function run(graph: Graph, inputs: readonly Tensor[]): Tensor[] {
  const given = inputs.filter((t) => t.storage !== null);
  return noGrad(() => new GraphModule(graph, belowDTensor).run(given)) as Tensor[];
}

describe('the decompositions of a graph', () => {
  const decomposable = allOps().filter((op) => op.decompose !== null);
  for (const op of decomposable)
    it(`of ${op.name} compute what it computes`, () => {
      let replaced = 0;
      for (const { inputs, params } of op.samples()) {
        const graph = graphOf(op, inputs, params);
        const expected = run(graph, inputs);
        replaced += decompose(graph, () => true);
        lint(graph);
        assert.ok(!opsOf(graph).includes(op.name) || graph.callNodes.length === 1);
        const results = run(graph, inputs);
        assert.equal(results.length, expected.length);
        results.forEach((result, i) => {
          assertClose(result, expected[i] as Tensor);
          assert.deepEqual(result.strides, expected[i]?.strides);
          assert.ok(!inputs.some((t) => t.storage !== null && t.storage === result.storage));
        });
      }
      assert.ok(replaced > 0, 'no sample was decomposed');
    });

  it('convert 16-bit operands first, and round once', () => {
    const op = decomposable.find(({ name }) => name === 'softmax') as AnyOp;
    const [{ inputs, params }] = op.samples() as [{ inputs: Tensor[]; params: object }];
    const narrow = inputs.map((t) => t.to(bfloat16));
    const graph = graphOf(op, narrow, params);
    const expected = run(graph, narrow);
    decompose(graph);
    assert.equal(graph.outputs.length, 1);
    assertClose(run(graph, narrow)[0] as Tensor, expected[0] as Tensor, 1e-2, 1e-3);
  });

  it('have the origin and the tags of the call, and new numbers', () => {
    const op = decomposable.find(({ name }) => name === 'softmax') as AnyOp;
    const [{ inputs, params }] = op.samples() as [{ inputs: Tensor[]; params: object }];
    const graph = graphOf(op, inputs, params);
    const [call] = graph.callNodes;
    const tags = new Set(['backward']);
    Object.assign(call as object, { origin: { site: 'there', path: 'layers.0' }, tags });
    decompose(graph);
    for (const node of graph.callNodes) {
      assert.deepEqual(node.origin, { site: 'there', path: 'layers.0' });
      assert.equal(node.tags, tags);
      assert.notEqual(node.id, call?.id);
    }
  });

  it('are made of the chosen ops only', () => {
    const joint = jointOf((x) => nn.functional.gelu(x.softmax(0)), [rand([3]).requiresGrad_()]);
    const gelu = allOps().find(({ name }) => name === 'geluBackward') as AnyOp;
    assert.equal(decompose(joint.graph, new Set([gelu])), 1);
    assert.ok(opsOf(joint.graph).includes('softmax'));
    assert.ok(!opsOf(joint.graph).includes('geluBackward'));
  });

  it('leave the values and gradients of a joint graph', () => {
    const args = [rand([4, 3]).requiresGrad_(), rand([3]).requiresGrad_()];
    const joint = jointOf(
      (x, w) => nn.functional.gelu(nn.functional.layerNorm(x, [3], { weight: w })).softmax(1),
      args,
    );
    const inputs = args.map((t) => t.detach());
    const tangent = rand([4, 3]);
    const expected = runPartition(defaultPartition(joint), 1, inputs, [tangent]) as Tensor[];
    assert.ok(decompose(joint.graph) >= 5);
    const results = runPartition(defaultPartition(joint), 1, inputs, [tangent]) as Tensor[];
    results.forEach((result, i) => {
      assertClose(result, expected[i] as Tensor);
    });
  });
});
