/** The min-cut partition computes what eager mode computes, with less memory saved for backward. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import '../../../lib/ops/collectives.js';
import { fusionThreshold } from '../../../lib/compile/fusion/threshold.js';
import { metaOf, type Node } from '../../../lib/compile/graph/node.js';
import {
  defaultPartition,
  Graph,
  minCutRematerializationPartition,
} from '../../../lib/compile/index.js';
import type { JointGraph, Partition } from '../../../lib/compile/partition/joint-graph.js';
import { minCutOfFused, savedBytes } from '../../../lib/compile/partition/min-cut.js';
import { type AnyOp, opByName } from '../../../lib/core/op.js';
import { autograd, nn, rand, scope, type Tensor } from '../../../lib/index.js';
import { assertFaithful, jointOf, opsOf } from './joint-graphs.js';
import { programs } from './random-programs.js';

const { functional: F } = nn;
const leaf = (...shape: number[]): Tensor => rand(shape).sub(0.5).requiresGrad_();
const bytes = (partition: Partition, free: readonly Node[] = []): number =>
  savedBytes(partition, new Set(free));

const node = (graph: Graph, name: string): Node =>
  graph.callNodes.find((n) => n.op?.name === name) as Node;
const tag = (graph: Graph, name: string, ...tags: string[]): void => {
  node(graph, name).tags = new Set(tags);
};
/** The ops whose values are saved. */
const savedOps = ({ saved }: Partition): string[] =>
  saved.map((value) => value.node.op?.name ?? value.node.effect ?? value.node.kind);

describe('the min-cut partition', () => {
  it('gives the values and gradients of random programs, and so does the default one', () => {
    fc.assert(
      fc.property(programs, ({ program }) =>
        scope(() => {
          const args = [leaf(3, 3), leaf(3, 3), leaf(3, 3)];
          const joint = assertFaithful(program, args, defaultPartition);
          assertFaithful(program, args, minCutRematerializationPartition);
          assert.ok(
            bytes(minCutRematerializationPartition(joint)) <= bytes(defaultPartition(joint)),
          );
        }),
      ),
      { numRuns: 40 },
    );
  }).timeout(60_000);

  it('computes cheap values again instead of saving them', () => {
    const joint = jointOf((x) => x.sin().sin(), [leaf(3)]);
    const parts = minCutRematerializationPartition(joint);
    assert.deepEqual(opsOf(parts.forward), ['sin', 'sin']);
    assert.deepEqual(opsOf(parts.backward), ['sin', 'cos', 'mul', 'cos', 'mul']);
    assert.deepEqual(savedOps(parts), ['placeholder']);
  });

  it('saves products, and computes the activation behind them again', () => {
    const joint = jointOf((x, w) => F.gelu(x.matmul(w)).matmul(w), [leaf(4, 4), leaf(4, 4)]);
    const parts = minCutRematerializationPartition(joint);
    assert.deepEqual(savedOps(parts), ['placeholder', 'placeholder', 'matmul']);
    assert.ok(opsOf(parts.backward).includes('gelu'));
  });

  it('computes no norm and no dropout again for a compiler that fuses pointwise calls', () => {
    const gated = (x: Tensor, up: Tensor, down: Tensor): Tensor => {
      const h = F.rmsNorm(x, [8]);
      return F.dropout(h.abs().mul(h.matmul(up)), { p: 0.5 }).matmul(down);
    };
    const joint = jointOf(gated, [leaf(512, 8), leaf(8, 8), leaf(8, 8)]);
    const { backward } = minCutOfFused(joint);
    const again = opsOf(backward);
    for (const name of ['abs', 'mul']) assert.ok(again.includes(name), name);
    for (const name of ['rmsNorm', 'dropout']) assert.ok(!again.includes(name), name);
    assert.ok(bytes(minCutOfFused(joint)) < bytes(defaultPartition(joint)));
    assertFaithful(gated, [leaf(512, 8), leaf(8, 8), leaf(8, 8)], minCutOfFused);
  });

  it('computes nothing again for such a compiler that takes the CPU longer than reading it', () => {
    fusionThreshold.leastOnCpu = 4096;
    const cases: readonly [rows: number, (x: Tensor) => Tensor][] = [
      [4, (x) => x.abs()], // so few are not fused
      [512, (x) => x.silu()],
      [512, (x) => x.sigmoid()],
    ];
    for (const [rows, activation] of cases) {
      const fn = (x: Tensor, w: Tensor): Tensor => activation(x.matmul(w)).matmul(w);
      const joint = jointOf(fn, [leaf(rows, 8), leaf(8, 8)]);
      const [fused, all] = [minCutOfFused(joint), defaultPartition(joint)];
      assert.deepEqual(opsOf(fused.backward), opsOf(all.backward));
      assert.equal(bytes(fused), bytes(all));
    }
    fusionThreshold.leastOnCpu = 0;
  });

  it('saves the sums of a residual stream for a compiler that fuses pointwise calls', () => {
    const joint = jointOf(
      (x, w) => {
        let sum = x.sin();
        for (let i = 0; i < 4; i++) sum = sum.add(F.rmsNorm(sum, [8]).matmul(w));
        return sum;
      },
      [leaf(4, 8), leaf(8, 8)],
    );
    const { backward, saved } = minCutOfFused(joint);
    assert.ok(!opsOf(backward).includes('rmsNorm'));
    assert.equal(saved.filter(({ node }) => node.op?.name === 'add').length, 3);
  });

  it('saves results much smaller than their operands', () => {
    const joint = jointOf((x) => x.sin().sum(0).exp(), [leaf(64, 4)]);
    const parts = minCutRematerializationPartition(joint);
    assert.ok(!opsOf(parts.backward).includes('sum'));
  });

  it('draws no random number again: a mask has the random state of forward', () => {
    const joint = jointOf((x) => F.dropout(x.sin(), { p: 0.5 }).sin(), [leaf(16)]);
    const parts = minCutRematerializationPartition(joint);
    assert.deepEqual(savedOps(parts), ['placeholder', 'draw']);
    assert.ok(opsOf(parts.backward).includes('dropout'));
    assert.ok(!parts.backward.nodes.some((n) => n.effect === 'draw'));
  });

  it('computes nothing again that reads memory which changes later', () => {
    const scale = rand([4]);
    const parts = minCutRematerializationPartition(
      jointOf(
        (x) => {
          const y = x.mul(scale.add(1)).sin();
          scale.add_(1);
          return y.sin();
        },
        [leaf(4)],
      ),
    );
    assert.ok(!opsOf(parts.backward).includes('add'));
  });

  it('counts saved parameters as free', () => {
    const joint = jointOf((x, w) => x.mul(w.exp()), [leaf(1, 4), leaf(4, 4)]);
    const parts = minCutRematerializationPartition(joint, { parameters: joint.primals.slice(1) });
    assert.deepEqual(savedOps(parts), ['placeholder', 'placeholder']);
    assert.ok(opsOf(parts.backward).includes('exp'));
  });

  it('saves what the tag mustSave says', () => {
    const joint = jointOf((x) => x.sin().sin(), [leaf(3)]);
    tag(joint.graph, 'sin', 'mustSave');
    const parts = minCutRematerializationPartition(joint);
    assert.deepEqual(savedOps(parts), ['placeholder', 'sin']);
  });

  it('computes again what the tag mustRecompute says', () => {
    const joint = jointOf((x, w) => F.gelu(x.matmul(w)), [leaf(4, 4), leaf(4, 4)]);
    tag(joint.graph, 'matmul', 'mustRecompute');
    const parts = minCutRematerializationPartition(joint);
    assert.deepEqual(savedOps(parts), ['placeholder', 'placeholder']);
  });

  it('saves what a region of recomputation reads of another one', () => {
    const make = (...regions: string[]): string[] => {
      const joint = jointOf((x) => x.exp().sin().cos().tanh(), [leaf(4)]);
      ['exp', 'sin', 'cos'].forEach((name, i) => {
        tag(joint.graph, name, regions[i] as string);
      });
      return savedOps(minCutRematerializationPartition(joint));
    };
    const [one, other] = ['mustRecompute:1', 'mustRecompute:2'];
    assert.deepEqual(make(one as string, one as string, one as string)[0], 'placeholder');
    assert.ok(make(one as string, one as string, other as string).includes('sin'));
  });

  it('saves what cannot be computed again, even with the tag mustRecompute', () => {
    const fn = (x: Tensor): Tensor => {
      const y = x.add(1);
      y.mul_(2);
      return y.sin();
    };
    const partition = (joint: JointGraph): Partition => {
      for (const each of joint.graph.callNodes) each.tags = new Set(['mustRecompute']);
      return minCutRematerializationPartition(joint);
    };
    assertFaithful(fn, [leaf(4)], partition);
  });

  it('lets forward compute what backward needs only in a smaller form', () => {
    const joint = jointOf((x) => x.mul(x.sum(1, { keepdim: true })), [leaf(3, 8)]);
    const parts = minCutRematerializationPartition(joint);
    assert.ok(bytes(parts) <= bytes(defaultPartition(joint)));
  });
});

const [batch, tokens, width, heads] = [2, 16, 32, 4] as const;

/** A transformer block: attention and a GELU MLP, each with a layer norm, dropout and residual. */
function block(x: Tensor, ...parameters: Tensor[]): Tensor {
  const [w1, b1, qkv, proj, w2, b2, up, down] = parameters as [
    Tensor,
    Tensor,
    Tensor,
    Tensor,
    Tensor,
    Tensor,
    Tensor,
    Tensor,
  ];
  const [q, k, v] = F.linear(F.layerNorm(x, [width], { weight: w1, bias: b1 }), qkv)
    .view([batch, tokens, 3, heads, width / heads])
    .permute([2, 0, 3, 1, 4])
    .unbind(0) as [Tensor, Tensor, Tensor];
  const mixed = F.scaledDotProductAttention(q, k, v, { dropoutP: 0.1, isCausal: true })
    .transpose(1, 2)
    .reshape([batch, tokens, width]);
  const y = x.add(F.dropout(F.linear(mixed, proj), { p: 0.1 }));
  const h = F.gelu(F.linear(F.layerNorm(y, [width], { weight: w2, bias: b2 }), up));
  return y.add(F.dropout(F.linear(h, down), { p: 0.1 }));
}

describe('the memory that a transformer block saves for backward', () => {
  const args = [
    leaf(batch, tokens, width),
    ...[leaf(width), leaf(width), leaf(3 * width, width), leaf(width, width)],
    ...[leaf(width), leaf(width), leaf(4 * width, width), leaf(width, 4 * width)],
  ];

  /** The bytes of the storages that the tape of eager mode keeps. */
  function bytesOfTape(): number {
    const storages = new Map<unknown, number>();
    const keep = (t: Tensor): Tensor => {
      storages.set(t.storage, t.untypedStorage().nbytes);
      return t;
    };
    autograd.savedTensorsHooks(
      keep,
      (t) => t,
      () => block(...(args as [Tensor])),
    );
    return [...storages.values()].reduce((sum, n) => sum + n, 0);
  }

  it('is that of the tape of eager mode with the default partition, and 0.63 of it with min-cut', () => {
    const joint = jointOf(block as (...given: Tensor[]) => Tensor, args);
    const all = defaultPartition(joint);
    assert.equal(bytes(all), bytesOfTape());
    const parameters = joint.primals.slice(1);
    const least = minCutRematerializationPartition(joint, { parameters });
    assert.ok(bytes(least, parameters) <= 0.63 * bytes(all, parameters));
  });

  it('holds all that the gradients of eager mode need', () => {
    assertFaithful(block as (...given: Tensor[]) => Tensor, args, minCutRematerializationPartition);
  });
});

describe('a collective in forward', () => {
  /** sin of a gathered tensor and its gradient: backward reads what was gathered. */
  function gathered(tags: readonly string[]): JointGraph {
    const op = (name: string): AnyOp => opByName(name) as AnyOp;
    const [{ inputs, params }] = op('allGather').samples() as [
      { inputs: Tensor[]; params: object },
    ];
    const metas = [metaOf(inputs[0] as Tensor)];
    const graph = new Graph();
    const call = (name: string, read: Node[], given: object = {}): Node =>
      graph.add({
        kind: 'call',
        name,
        op: op(name),
        inputs: read.map((from) => ({ node: from, output: 0 })),
        params: given,
        metas,
      });
    const x = graph.add({ kind: 'placeholder', name: 'x', metas });
    const whole = call('allGather', [x], params);
    whole.tags = new Set(tags);
    const y = call('sin', [whole]);
    const tangent = graph.add({ kind: 'placeholder', name: 'tangent', metas });
    const gradient = call('mul', [tangent, call('cos', [whole])]);
    graph.outputs = [y, gradient].map((from) => ({ node: from, output: 0 }));
    return { graph, primals: [x], tangents: [tangent], forwardOutputs: 1 };
  }

  it('runs once, and its result is saved', () => {
    const { backward, saved } = minCutRematerializationPartition(gathered([]));
    assert.deepEqual(opsOf(backward), ['cos', 'mul']);
    assert.deepEqual(
      saved.map((value) => value.node.name),
      ['allGather'],
    );
  });

  it('runs again in backward with the tag reshardAfterForward', () => {
    const { forward, backward, saved } = minCutRematerializationPartition(
      gathered(['reshardAfterForward']),
    );
    assert.deepEqual(opsOf(forward), ['allGather', 'sin']);
    assert.deepEqual(opsOf(backward), ['allGather', 'cos', 'mul']);
    assert.deepEqual(
      saved.map((value) => value.node.name),
      ['x'],
    );
  });
});
