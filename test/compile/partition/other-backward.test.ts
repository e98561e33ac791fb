/** The backward graph of a second trace gets what the first partition saved. */
import assert from 'node:assert/strict';
import { defaultPartition, minCutRematerializationPartition } from '../../../lib/compile/index.js';
import type { JointGraph } from '../../../lib/compile/partition/joint-graph.js';
import { otherBackward } from '../../../lib/compile/partition/other-backward.js';
import { allButComputeBound, decompose } from '../../../lib/compile/passes/decompose.js';
import { CompileError, float64, rand, type Tensor } from '../../../lib/index.js';
import { jointOf, opsOf } from './joint-graphs.js';

type Fn = (x: Tensor, y: Tensor) => Tensor[];
const joint = (fn: Fn): JointGraph =>
  jointOf(fn, [rand([3]).requiresGrad_(), rand([3]).requiresGrad_()]);

const product: Fn = (x, y) => [x.sin().mul(y.exp())];

describe('the backward graph of another trace', () => {
  it('takes saved values in its own order, whatever partition saved them', () => {
    const first = joint(product);
    for (const partitionFn of [defaultPartition, minCutRematerializationPartition]) {
      const partition = partitionFn(first);
      const second = joint(product);
      const { backward, saved } = otherBackward(
        { joint: first, partition },
        second,
        second.tangents,
      );
      assert.deepEqual(opsOf(backward).sort(), opsOf(partition.backward).sort());
      assert.deepEqual([...saved].sort(), [...partition.saved.keys()]);
    }
  });

  it('takes only what it reads', () => {
    const first = joint((x, y) => [x.sin(), y.exp()]);
    const partition = defaultPartition(first);
    const second = joint((x, y) => [x.sin(), y.exp()]);
    second.graph.outputs.splice(3);
    const { backward, saved } = otherBackward(
      { joint: first, partition },
      second,
      second.tangents.slice(0, 1),
    );
    assert.deepEqual(opsOf(backward), ['cos', 'mul']);
    assert.equal(saved.length, 1);
  });

  it('takes a saved value for each of those that are computed alike', () => {
    const simplified = (): JointGraph => {
      const [x, y] = [0, 1].map(() => rand([2, 3], { dtype: float64 }).requiresGrad_());
      const softplus: Fn = (a, b) => {
        const h = b.mul(2);
        return [a.maximum(h), h.diagonal().softplus()];
      };
      const made = jointOf(softplus, [x, y] as [Tensor, Tensor]);
      decompose(made.graph, allButComputeBound);
      return made;
    };
    const [first, second] = [simplified(), simplified()];
    const partition = minCutRematerializationPartition(first);
    const { backward, saved } = otherBackward({ joint: first, partition }, second, second.tangents);
    assert.deepEqual([...saved].sort(), [...partition.saved.keys()]);
    assert.deepEqual(opsOf(backward).sort(), opsOf(partition.backward).sort());
  });

  it('is refused if forward was another one', () => {
    const first = joint(product);
    const partition = defaultPartition(first);
    const second = joint((x, y) => [x.cos().mul(y.exp())]);
    assert.throws(
      () => otherBackward({ joint: first, partition }, second, second.tangents),
      (error) => error instanceof CompileError && /traced as before, got %cos/.test(error.message),
    );
  });

  it('is refused if it reads what forward did not save', () => {
    const first = joint((x, y) => [x.exp().mul(2), y.mul(3)]);
    const partition = defaultPartition(first);
    const second = joint((x, y) => [x.exp().mul(2), y.mul(3)]);
    const { graph } = second;
    // Backward of the second reads the product, which only the first trace's forward has.
    const [mul] = graph.callNodes.filter(({ op }) => op?.name === 'mul');
    const last = graph.outputs[2] as { node: NonNullable<typeof mul>; output: number };
    last.node.inputs.splice(0, 1, { node: mul as NonNullable<typeof mul>, output: 0 });
    assert.throws(
      () => otherBackward({ joint: first, partition }, second, second.tangents),
      (error) => error instanceof CompileError && /%mul of forward.* not saved/.test(error.message),
    );
  });
});
