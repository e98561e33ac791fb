/** Functions compiled with the partitions and passes run as they do eagerly. */
import assert from 'node:assert/strict';
import fc from 'fast-check';
import {
  aotAutograd,
  type CompileBackend,
  defaultPartition,
  minCutRematerializationPartition,
} from '../../../lib/compile/index.js';
import { decompose } from '../../../lib/compile/passes/decompose.js';
import { functionalise } from '../../../lib/compile/passes/functionalise.js';
import {
  compile,
  InPlaceError,
  manualSeed,
  nn,
  noGrad,
  rand,
  scope,
  type Tensor,
} from '../../../lib/index.js';
import { assertEqualRuns, leaf } from '../aot/differential.js';
import { programs } from './random-programs.js';

const backends: Record<string, CompileBackend> = {
  'the default partition': aotAutograd({ partitionFn: defaultPartition }),
  'the min-cut partition': aotAutograd({ partitionFn: minCutRematerializationPartition }),
  'the min-cut partition of a functional graph': aotAutograd({
    partitionFn: (joint) => {
      functionalise(joint.graph);
      return minCutRematerializationPartition(joint);
    },
  }),
};

const decomposing = aotAutograd({
  partitionFn: (joint) => {
    decompose(joint.graph);
    functionalise(joint.graph);
    return minCutRematerializationPartition(joint);
  },
});

describe('a function compiled with', () => {
  for (const [name, backend] of Object.entries(backends)) {
    it(`${name} has the values, gradients and versions of eager mode`, () => {
      fc.assert(
        fc.property(programs, ({ program }) =>
          scope(() =>
            assertEqualRuns(program, () => [leaf(3, 3), leaf(3, 3), leaf(3, 3)], backend),
          ),
        ),
        { numRuns: 25 },
      );
    }).timeout(60_000);

    it(`${name} changes its arguments as eager mode does`, () => {
      const changed = (x: Tensor, w: Tensor): Tensor[] => {
        x.select(0, 0).mul_(2);
        const y = x.exp().mul(w).sin();
        x.add_(y);
        return [y.cos(), x];
      };
      assertEqualRuns(changed as never, () => [rand([3, 3]), leaf(3, 3)], backend);
    });
  }

  it('the min-cut partition refuses an input that was changed before it is needed again', () => {
    const backend = backends['the min-cut partition'] as CompileBackend;
    const x = leaf(3);
    const y = compile((t: Tensor) => t.exp().sin().sin(), { backend, fullgraph: true })(x);
    noGrad(() => x.add_(1));
    assert.throws(() => y.sum().backward(), InPlaceError);
  });

  it('decompositions trains a transformer layer', () => {
    const train = (backend: CompileBackend | null): number[] => {
      manualSeed(1);
      const model = new nn.TransformerEncoderLayer(8, 2, { dimFeedforward: 16, batchFirst: true });
      const compiled = backend && compile(model, { backend, fullgraph: true });
      const x = rand([2, 5, 8]);
      manualSeed(5);
      return [1, 2, 3, 4].flatMap(() => {
        model.zeroGrad();
        const y = compiled === null ? model(x) : compiled(x);
        y.mul(y).sum().backward();
        const grads = [...model.parameters()].map((p) => p.grad as Tensor);
        return [y, ...grads].flatMap((t) => t.reshape(-1).tolist() as number[]);
      });
    };
    const [expected, results] = [train(null), train(decomposing)];
    for (const [i, value] of expected.entries())
      assert.ok(Math.abs((results[i] as number) - value) <= 1e-4 + 1e-4 * Math.abs(value));
  });
});
