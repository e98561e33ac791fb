/** Where no kernels can be loaded, `'inductor'` runs ops one by one, and says why. */
import assert from 'node:assert/strict';
import { isWorthFusing } from '../../../lib/compile/fusion/candidates.js';
import { fusePointwise } from '../../../lib/compile/fusion/fuse.js';
import { fusionThreshold } from '../../../lib/compile/fusion/threshold.js';
import { aotAutograd, compile, compiler, type GraphModule } from '../../../lib/compile/index.js';
import { currentRuntime, kernelLoading } from '../../../lib/core/rank-runtime.js';
import '../../../lib/distributed.js';
import { randn, type Tensor } from '../../../lib/index.js';
import { onRanks } from '../../distributed/support/on-ranks.js';
import { lower } from '../schedule/lowered.js';

const gated = (x: Tensor, y: Tensor): Tensor => x.silu().mul(y).sigmoid();

/** The number of fused calls in the forward graph. */
function fusedCalls(x: Tensor, y: Tensor): number {
  let count = -1;
  const fwCompiler = (module: GraphModule) => {
    count = fusePointwise(module.graph);
    return module.forward.bind(module);
  };
  const backend = aotAutograd({ fwCompiler });
  compile(gated, { backend })(x.detach(), y);
  return count;
}

describe("a function that 'inductor' compiles", () => {
  it('runs its ops one by one on ranks that load no kernels, and explain says why once', () =>
    onRanks(2, async (rank) => {
      const runtime = currentRuntime();
      // As ranks of one process do that have a GPU each.
      if (rank === 1) runtime.world = { ...runtime.world, loadsKernels: () => false };
      const [x, y] = [randn([4, 8]).requiresGrad_(), randn([8])];
      const explained = compiler.explain(compile(gated, { backend: 'inductor' }));
      const report = explained(x, y);
      assert.deepEqual(await (report.result as Tensor).read(), await gated(x, y).read());
      (report.result as Tensor).sum().backward();
      const leaf = x.detach().requiresGrad_();
      gated(leaf, y).sum().backward();
      const [seen, expected] = [x, leaf].map(({ grad }) => (grad as Tensor).read());
      assert.deepEqual(await seen, await expected);
      assert.equal(fusedCalls(x, y), rank === 1 ? 0 : 1);
      const { unfused } = report.graphs[0] as (typeof report.graphs)[0];
      const lines = String(report).match(/runs its ops one by one: .*/g) ?? [];
      if (rank === 0) assert.deepEqual([unfused, lines], [null, []]);
      else assert.match(unfused as string, /a GPU each.* Run each rank in a process of its own/);
      assert.equal(lines.length, rank);
      const other = compiler.explain(compile(gated, { backend: 'aot_eager' }))(x, y);
      assert.equal(other.graphs[0]?.unfused, null);
    }));

  it('goes on when the process may load kernels no more', () => {
    const compiled = compile(gated, { backend: 'inductor' });
    const [x, y] = [randn([4, 8]), randn([8])];
    const expected = gated(x, y).tolist();
    assert.deepEqual(compiled(x, y).tolist(), expected);
    kernelLoading.hasEnded = true;
    try {
      for (let call = 0; call < 2; call++) assert.deepEqual(compiled(x, y).tolist(), expected);
      // The CPU has no kernels to load.
      assert.equal(fusedCalls(x, y), 1);
    } finally {
      kernelLoading.hasEnded = false;
    }
  });
});

describe('small tensors on the CPU', () => {
  it("are not fused by 'inductor', whose results stay equal", () => {
    const { leastOnCpu } = fusionThreshold;
    fusionThreshold.leastOnCpu = 4096;
    try {
      const commands = [1023, 1024].map((rows) => {
        const [x, y] = [randn([rows, 4]), randn([4])];
        const graph = lower((...inputs) => [gated(...(inputs as [Tensor, Tensor]))], [x, y]);
        fusePointwise(graph, isWorthFusing);
        assert.deepEqual(compile(gated)(x, y).tolist(), gated(x, y).tolist());
        return graph.callNodes.length;
      });
      assert.deepEqual(commands, [3, 1]);
    } finally {
      fusionThreshold.leastOnCpu = leastOnCpu;
    }
  });
});
