/** `'inductor'` on ranks of one process that have a GPU each. */
import assert from 'node:assert/strict';
import { compile, compiler } from '../../../lib/compile/index.js';
import { allReduce, DTensor, initDeviceMesh, Replicate, Shard } from '../../../lib/distributed.js';
import { cuda, manualSeed, matmul, nn, randn, type Tensor } from '../../../lib/index.js';
import { onRanks } from '../../distributed/support/on-ranks.js';
import { assertClose } from '../../seeds/compiled.js';
import { skipBecause, skipWithoutCuda } from '../../skip.js';

const LONG = { timeoutMs: 60_000 };
const gated = (x: Tensor, y: Tensor): Tensor => x.silu().mul(y).sigmoid();

const valuesOf = async (t: Tensor): Promise<unknown> => [...(await t.detach().float().read())];

/** Values and gradients of a function of two new tensors. */
async function facts(fn: typeof gated, rows: number, dtype: 'float32' | 'bfloat16') {
  manualSeed(rows);
  const [x, y] = [0, 1].map(() => randn([rows, 8], { device: 'cuda', dtype }).requiresGrad_());
  const out = fn(x as Tensor, y as Tensor);
  out.sum().backward();
  return Promise.all([out, x?.grad, y?.grad].map((t) => valuesOf(t as Tensor)));
}

describe("'inductor' on ranks of one process with a GPU each", () => {
  before(function () {
    skipWithoutCuda(this);
    if (cuda.deviceCount() < 2) skipBecause(this, 'one GPU, it takes two');
  });

  it('runs ops one by one, as explain says, also before the first collective', async () => {
    const outside = compile(gated, { backend: 'inductor' });
    const fused = compiler.explain(outside)(
      randn([4, 8], { device: 'cuda' }),
      randn([8], { device: 'cuda' }),
    );
    await onRanks(
      2,
      async () => {
        const compiled = compile(gated, { backend: 'inductor' });
        // Captured before the group of GPUs exists, and with kernels that nobody has compiled.
        for (const [rows, dtype] of [
          [16, 'float32'],
          [48, 'bfloat16'],
        ] as const) {
          const seen = await facts(compiled, rows, dtype);
          assert.deepEqual(seen, await facts(gated, rows, dtype));
          const sum = randn([4], { device: 'cuda' });
          allReduce(sum);
          assert.deepEqual(await facts(compiled, rows, dtype), seen);
          await sum.read();
        }
        const report = compiler.explain(compiled)(
          randn([5, 8], { device: 'cuda' }),
          randn([5, 8], { device: 'cuda' }),
        );
        assert.match(report.graphs.at(-1)?.unfused ?? '', /ranks of this process have a GPU each/);
      },
      LONG,
    );
    assert.equal(fused.graphs[0]?.unfused, null);
    // A graph of the process itself, whose kernel for this dtype was never loaded.
    for (const dtype of ['float32', 'bfloat16'] as const)
      assert.deepEqual(await facts(outside, 32, dtype), await facts(gated, 32, dtype));
  });

  it('seed 001.14: takes a gradient of other placements and strides than its result', () =>
    onRanks(
      2,
      async () => {
        const mesh = initDeviceMesh('cuda', [2]);
        const fn = (x: Tensor, y: Tensor, z: Tensor): Tensor =>
          nn.functional.layerNorm(x.permute(0, 2, 1).contiguous(), [4], y, z).permute(0, 2, 1);
        const gradients = async (run: typeof fn): Promise<unknown[]> => {
          manualSeed(14);
          const shapes = [[4, 2, 4], [4], [4]];
          const leaves = shapes.map((shape) => randn(shape, { device: 'cuda' }).requiresGrad_());
          const placed = leaves.map((leaf, i) =>
            DTensor.fromLocal(leaf, mesh, [i === 0 ? Shard(1) : Replicate()]),
          ) as [Tensor, Tensor, Tensor];
          matmul(run(...placed), placed[0])
            .permute(0, 2, 1)
            .sum()
            .backward();
          return Promise.all(leaves.map(({ grad }) => valuesOf(grad as Tensor)));
        };
        const compiled = compile(fn, { backend: 'inductor', fullgraph: true });
        assertClose(await gradients(compiled), await gradients(fn));
      },
      LONG,
    ));
});
