/** The default partition computes what eager mode computes, and saves what eager mode saves. */
import assert from 'node:assert/strict';
import { defaultPartition } from '../../../lib/compile/index.js';
import { CompileError, nn, rand, type Tensor, tensor } from '../../../lib/index.js';
import { assertFaithful, jointOf, numbers, opsOf, runPartition } from './joint-graphs.js';

const { functional: F } = nn;

const leaf = (...shape: number[]): Tensor => rand(shape).sub(0.5).requiresGrad_();

const functions: Record<string, () => [(...args: Tensor[]) => Tensor, Tensor[]]> = {
  'a product of sines': () => [(x, y) => x.sin().mul(y.sin()), [leaf(3), leaf(3)]],
  'a linear layer with GELU': () => [
    (x, w, b) => F.gelu(F.linear(x, w, b)),
    [leaf(3, 4), leaf(5, 4), leaf(5)],
  ],
  'a layer norm': () => [
    (x, w, b) => F.layerNorm(x, [4], { weight: w, bias: b }),
    [leaf(3, 4), leaf(4), leaf(4)],
  ],
  dropout: () => [(x) => F.dropout(x.mul(2), { p: 0.5 }), [leaf(5, 4)]],
  'attention with dropout': () => [
    (q, k, v) => F.scaledDotProductAttention(q, k, v, { dropoutP: 0.5 }),
    [leaf(1, 2, 4, 3), leaf(1, 2, 4, 3), leaf(1, 2, 4, 3)],
  ],
  'views and in-place changes': () => [
    (x) => {
      const y = x.mul(2);
      y.select(0, 1).mul_(3);
      y.t().add_(1);
      return y.exp().mul(y.select(1, 0).unsqueeze(1));
    },
    [leaf(3, 3)],
  ],
  'an in-place change of a column of transposed memory': () => [
    (x) => {
      const y = x.add(1).t().mul(0.5);
      y.select(1, 0).add_(x.select(0, 2));
      return y.sin();
    },
    [leaf(3, 3)],
  ],
  'a view whose base gets other memory': () => [
    (x) => {
      const y = x.mul(2);
      const z = y.t().sin();
      y.data = rand([3, 3]).mul(0);
      return z.add(y);
    },
    [leaf(3, 3)],
  ],
  'a view of a view whose base gets other memory': () => [
    (x) => {
      const y = x.mul(2);
      const z = y.t().select(0, 1).sin();
      y.data = rand([3, 3]).mul(0);
      return z.add(y);
    },
    [leaf(3, 3)],
  ],
  'cross entropy': () => [
    (x) => F.crossEntropy(x, tensor([0, 2, 1], { dtype: 'int64' as never })),
    [leaf(3, 4)],
  ],
};

describe('the default partition', () => {
  for (const [what, make] of Object.entries(functions))
    it(`gives eager's values and gradients of ${what}`, () => {
      assertFaithful(...make(), defaultPartition);
    });

  it('runs in forward what the function runs, and the rest in backward', () => {
    const parts = defaultPartition(jointOf((x) => x.sin().sin(), [leaf(3)]));
    assert.deepEqual(opsOf(parts.forward), ['sin', 'sin']);
    assert.deepEqual(opsOf(parts.backward), ['cos', 'mul', 'cos', 'mul']);
  });

  it('keeps the numbers of nodes', () => {
    const joint = jointOf((x) => x.sin().sin(), [leaf(3)]);
    const ids = new Map(joint.graph.nodes.map((node) => [node.id, node.name]));
    const { forward, backward } = defaultPartition(joint);
    for (const node of [...forward.nodes, ...backward.nodes])
      assert.equal(ids.get(node.id), node.name);
  });

  it('saves what views are views of, once, and computes the views again', () => {
    const joint = jointOf((x, w) => x.matmul(w.t()).relu(), [leaf(2, 3), leaf(4, 3)]);
    const parts = defaultPartition(joint);
    assert.deepEqual(
      parts.saved.map(({ node }) => node),
      [...joint.primals, joint.graph.callNodes.find((n) => n.op?.name === 'relu')],
    );
    assert.ok(opsOf(parts.backward).includes('transpose'));
  });

  it('saves an input as itself', () => {
    const joint = jointOf((x) => x.mul(x), [leaf(2)]);
    const parts = defaultPartition(joint);
    assert.deepEqual(parts.forward.outputs.at(-1), {
      node: parts.forward.placeholders[0],
      output: 0,
    });
  });

  it('saves the random states of forward after its tensors, and never draws in backward', () => {
    const qkv = [leaf(1, 2, 4, 3), leaf(1, 2, 4, 3), leaf(1, 2, 4, 3)];
    const joint = jointOf((q, k, v) => {
      return F.scaledDotProductAttention(q, k, v, { dropoutP: 0.5 });
    }, qkv);
    const { backward, saved } = defaultPartition(joint);
    assert.deepEqual(
      saved.slice(5).map(({ node }) => node.effect),
      ['draw'],
    );
    assert.ok(!backward.nodes.some((node) => node.effect === 'draw'));
  });

  it('leaves the joint graph as it is', () => {
    const joint = jointOf((x) => x.sin().mul(x), [leaf(3)]);
    const text = String(joint.graph);
    defaultPartition(joint);
    assert.equal(String(joint.graph), text);
  });

  it('passes outputs that are inputs, and gradients that are tangents', () => {
    const joint = jointOf(
      (x, y) => [x.detach().add(0).add(y), y.mul(1)] as never,
      [leaf(2), leaf(2)].map((t, i) => t.detach().requiresGrad_(i === 1)),
    );
    joint.graph.outputs[0] = { node: joint.primals[0] as never, output: 0 };
    joint.graph.outputs[2] = { node: joint.tangents[0] as never, output: 0 };
    const parts = defaultPartition(joint);
    const [x, y, g, h] = [1, 2, 3, 4].map((n) => tensor([n, n]));
    const results = runPartition(parts, 2, [x, y] as Tensor[], [g, h] as Tensor[]);
    assert.deepEqual(numbers(results), [
      [1, 1],
      [2, 2],
      [3, 3],
    ]);
  });

  it('keeps changes of memory in their half and order', () => {
    const buffer = rand([3]);
    const joint = jointOf(
      (x) => {
        buffer.add_(1);
        const y = x.mul(2);
        buffer.mul_(2);
        return y.mul(y);
      },
      [leaf(3)],
    );
    const { forward, backward } = defaultPartition(joint);
    const inPlace = (g: typeof forward): string[] =>
      g.callNodes.filter((n) => n.into !== null).map((n) => n.op?.name ?? '');
    assert.deepEqual(inPlace(forward), ['add', 'mul']);
    assert.deepEqual(inPlace(backward), []);
  });
});

describe('a joint graph that cannot be partitioned', () => {
  it('is refused without tangents', () => {
    const joint = { ...jointOf((x) => x.sin(), [leaf(3)]), tangents: [] };
    assert.throws(() => defaultPartition(joint), CompileError);
    assert.throws(() => defaultPartition(joint), /with tangents, got one without/);
  });

  it('is refused if a pass broke its order', () => {
    const joint = jointOf((x) => x.sin().cos(), [leaf(3)]);
    const [sin, cos] = joint.graph.callNodes;
    joint.graph.moveBefore(cos as never, sin as never);
    assert.throws(() => defaultPartition(joint), /node %cos uses %sin, which does not come before/);
  });

  it('is refused if an output of the function comes after the first tangent', () => {
    const joint = jointOf((x) => x.sin().cos(), [leaf(3)]);
    const last = joint.graph.callNodes.at(-1) as never;
    joint.graph.outputs[0] = { node: last, output: 0 };
    assert.throws(
      () => defaultPartition(joint),
      /output 0 of the function needs %mul.* of backward/,
    );
  });

  it('is refused if a placeholder is neither primal nor tangent', () => {
    const joint = jointOf((x) => x.sin(), [leaf(3)]);
    assert.throws(() => defaultPartition({ ...joint, primals: [] }), /%arg/);
  });
});
