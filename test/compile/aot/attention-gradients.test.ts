/** Graphs of attention write the gradients of parts of one tensor into one tensor. */
import assert from 'node:assert/strict';
import { compile, compiledAutograd } from '../../../lib/compile/index.js';
import { manualSeed, nn, type Tensor } from '../../../lib/index.js';
import { type AttentionSizes, packings } from '../../ops/attention-packings.js';
import { jointOf } from '../partition/joint-graphs.js';
import { assertEqualRuns, leaf } from './differential.js';

const { scaledDotProductAttention } = nn.functional;
const BACKENDS = ['eager', 'aot_eager', 'aot_eager_decomp_partition'] as const;

describe('a graph of attention of parts of one tensor', () => {
  for (const [name, { isGrouped, shape, split }] of Object.entries(packings)) {
    const sizes: AttentionSizes = {
      ...{ batch: 2, length: 5, heads: 4, depth: 8 },
      kvHeads: isGrouped ? 2 : 4,
    };
    const attend = (x: Tensor): Tensor =>
      scaledDotProductAttention(...split(x.mul(2), sizes), { isCausal: true, enableGqa: true });

    it(`has no copy of its gradients: ${name}`, () => {
      const { graph } = jointOf(attend, [leaf(...shape(sizes))]);
      const ops = graph.callNodes.map((node) => node.op?.name);
      assert.ok(ops.includes('attentionBackwardJoined'), ops.join(' '));
      assert.ok(!ops.includes('copy'), ops.join(' '));
    });

    it(`gives the gradients of uncompiled code: ${name}`, () => {
      for (const backend of BACKENDS)
        assertEqualRuns(attend, () => [leaf(...shape(sizes))], backend);
    });
  }

  /** Causal attention of heads of 8 features, whose parts a layer gives. */
  const thirds = (packed: Tensor): [Tensor, Tensor, Tensor] => {
    const [batch, length] = packed.shape as [number, number];
    return packed.chunk(3, -1).map((t) => t.view([batch, length, 4, 8]).transpose(1, 2)) as [
      Tensor,
      Tensor,
      Tensor,
    ];
  };

  const programs: Readonly<Record<string, (x: Tensor) => Tensor | readonly Tensor[]>> = {
    'that returns the parts, too': (x) => {
      const parts = thirds(x.mul(2));
      return [scaledDotProductAttention(...parts), ...parts];
    },
    'that uses keys again': (x) => {
      const [q, k, v] = thirds(x.mul(2));
      return scaledDotProductAttention(q, k, v).add(k);
    },
    'of parts of its argument': (x) => scaledDotProductAttention(...thirds(x)),
    'that changes the gradient of its parts': (x) => {
      const [q, k, v] = thirds(x.mul(2));
      k.registerHook((g: Tensor) => g.mul(3));
      return scaledDotProductAttention(q, k, v);
    },
    'that changes the joined gradient in place': (x) => {
      const packed = x.mul(2);
      packed.registerHook((g: Tensor) => g.mul_(3));
      return scaledDotProductAttention(...thirds(packed));
    },
    'of two layers': (x) => {
      const out = scaledDotProductAttention(...thirds(x.mul(2)));
      const packed = out.transpose(1, 2).flatten(2).repeat([1, 1, 3]);
      return scaledDotProductAttention(...thirds(packed));
    },
  };
  for (const [what, program] of Object.entries(programs))
    it(`gives the gradients of uncompiled code: one ${what}`, () => {
      for (const backend of BACKENDS) assertEqualRuns(program, () => [leaf(2, 5, 96)], backend);
    });

  it('serves any length', () => {
    for (const backend of BACKENDS) {
      const attend = (x: Tensor): Tensor => scaledDotProductAttention(...thirds(x.mul(2)));
      const compiled = compile(attend, { backend, dynamic: true, fullgraph: true });
      for (const length of [5, 7, 1, 64]) {
        const [x, y] = [leaf(2, length, 96), leaf(2, length, 96)];
        y.data = x.detach().clone();
        compiled(x).square().sum().backward();
        attend(y).square().sum().backward();
        assert.deepEqual(x.grad?.tolist(), y.grad?.tolist());
      }
    }
  });

  it('is right where backward is captured, and reads parts of other memory later', () => {
    const run = (isApart: boolean): unknown => {
      const x = leaf(2, 5, 96);
      const parts = thirds(x.mul(2)).map((t) => (isApart ? t.clone() : t));
      scaledDotProductAttention(...(parts as [Tensor, Tensor, Tensor]))
        .square()
        .sum()
        .backward();
      return x.grad?.tolist();
    };
    const rounds = (): unknown[] => {
      manualSeed(3);
      return [false, false, true, false].map(run);
    };
    assert.deepEqual(
      compiledAutograd.enable((fn) => compile(fn as never), rounds),
      rounds(),
    );
  });
});
