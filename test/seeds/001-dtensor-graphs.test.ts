/**
 * Graphs of compiled functions on distributed tensors, graph breaks, fake ranks and parallel models
 * as PyTorch's test_dtensor_compile.py requires them.
 */
import assert from 'node:assert/strict';
import {
  FakeTensorMode,
  type GraphModule,
  type Node,
  type Value,
  type ValueMeta,
} from '../../lib/compile/index.js';
import {
  DeviceMesh,
  DTensor,
  type DTensorSpec,
  destroyProcessGroup,
  initDeviceMesh,
  initProcessGroup,
  Partial,
  Replicate,
  Shard,
} from '../../lib/distributed.js';
import {
  compile,
  compiler,
  graphBreak,
  manualSeed,
  nn,
  ones,
  rand,
  randn,
  type Tensor,
} from '../../lib/index.js';
import { CompileCounter, CompileCounterWithBackend, FakeStore } from '../../lib/testing/index.js';
import { onRanks } from '../distributed/support/on-ranks.js';
import {
  assertAsEager,
  BACKENDS,
  FULL,
  factsOf,
  leavesNoMemory,
  opsOf,
  recordingBackend,
} from './compiled.js';
import { onMesh } from './worlds.js';

describe('a compiled function on distributed tensors', () => {
  leavesNoMemory();

  it('seed 001.4: is a graph of two local ops and no collective', async () => {
    await onMesh(2, async (mesh) => {
      const { backend, forward } = recordingBackend();
      const compiled = compile((x: Tensor) => x.mul(x).add(2), { ...FULL, backend });
      compiled(DTensor.fromLocal(rand([1]), mesh, [Shard(0)]));
      assert.deepEqual(forward.map(opsOf), [['mul', 'add']]);
    });
  });

  for (const backend of BACKENDS)
    it(`seed 001.6: breaks around a constructor, and captures the module behind it, backend ${backend}`, async () => {
      await onRanks(2, async () => {
        const mesh = initDeviceMesh('cpu', [1, 2]);
        const placements = [Replicate(), Shard(0)];
        const like = DTensor.fromLocal(randn([64, 32]), mesh, placements) as DTensor;
        const spec = like._spec as DTensorSpec;
        assert.deepEqual(spec.shape, [128, 32]);
        let printed = 0;
        const behind = new nn.GELU();
        const fn = (x: Tensor): Tensor => {
          printed++;
          graphBreak();
          return behind(new DTensor(x, spec, { requiresGrad: x.requiresGrad }));
        };
        const counter = CompileCounterWithBackend(backend);
        const compiled = compile(fn, { backend: counter });
        const x = randn([64, 32], { requiresGrad: true });
        const printedBy: number[] = [];
        await assertAsEager(fn, compiled, async (run) => {
          const before = printed;
          const out = run(x);
          printedBy.push(printed - before);
          assert.ok(out instanceof DTensor);
          return factsOf([out]);
        });
        // No capture is tried of a function that assigns to a variable outside of it.
        assert.deepEqual(printedBy, [1, 1, 1, 1]);
        assert.deepEqual(
          counter.graphs.map((graph) => opsOf({ graph })),
          [['gelu']],
        );
      });
    });

  it('seed 001.7: calls a function that is excluded, once in each call', async () => {
    await onMesh(2, async (mesh) => {
      const like = DTensor.fromLocal(rand([32]), mesh, [Replicate()]) as DTensor;
      const spec = like._spec as DTensorSpec;
      let calls = 0;
      const wrap = compiler.disable(
        (x: Tensor) => {
          calls++;
          return new DTensor(x, spec, { requiresGrad: x.requiresGrad });
        },
        { recursive: false },
      );
      const counter = CompileCounter();
      const compiled = compile(wrap, { backend: counter });
      await assertAsEager(wrap, compiled, async (run) => {
        manualSeed(7);
        const x = rand([32], { requiresGrad: true });
        const before = calls;
        const out = run(x);
        assert.equal(calls, before + 1);
        assert.ok(out instanceof DTensor && out.requiresGrad);
        out.mul(3).sum().backward();
        assert.equal(x.grad, null);
        return factsOf([out, out.grad]);
      });
      assert.equal(counter.frameCount, 0);
    });
  });

  it('seed 001.9: is a graph of one addition', async () => {
    await onMesh(2, async (mesh) => {
      const { backend, forward } = recordingBackend();
      const fn = (x: Tensor): Tensor => DTensor.fromLocal(x, mesh, [Replicate()]).toLocal().add(2);
      compile(fn, { ...FULL, backend })(ones([1], { requiresGrad: true }));
      assert.deepEqual(forward.map(opsOf), [['add']]);
    });
  });

  for (const worldSize of [2, 4])
    it(`seed 001.10: has a fake with the shape and strides of an uneven shard, rank 3 of ${worldSize}`, async () => {
      await initProcessGroup('fake', { store: new FakeStore(), rank: 3, worldSize });
      try {
        const mesh = new DeviceMesh('cpu', [1, 3]);
        assert.equal(mesh.getLocalRank(), 1);
        const local = randn([10, 257, 160], { requiresGrad: true });
        const partial = DTensor.fromLocal(local, mesh, [Partial()], {
          shape: [10, 257, 160],
          stride: [41120, 160, 1],
        });
        const real = partial.redistribute(mesh, [Shard(1)]) as DTensor;
        const mode = new FakeTensorMode();
        const fakePartial = mode.fromTensor(partial) as DTensor;
        const redistributed = mode.run(() => fakePartial.redistribute(mesh, [Shard(1)]));
        const compiled = compile((t: DTensor) => t.redistribute(mesh, [Shard(1)]), FULL)(partial);
        assert.deepEqual(real.shape, [10, 257, 160]);
        assert.deepEqual(real.stride(), [41120, 160, 1]);
        assert.deepEqual(real._localTensor.shape, [10, 128, 160]);
        for (const like of [mode.fromTensor(real), redistributed, compiled] as DTensor[])
          for (const each of [(t: DTensor) => t, (t: DTensor) => t._localTensor]) {
            assert.deepEqual(each(like).shape, each(real).shape);
            assert.deepEqual(each(like).stride(), each(real).stride());
          }
      } finally {
        await destroyProcessGroup();
      }
    });

  it('seed 001.11: gives backward a contiguous gradient', async () => {
    await onMesh(2, async (mesh) => {
      const { backend, backward } = recordingBackend();
      const fn = (x: DTensor): Tensor => x.redistribute(mesh, [Shard(1)]);
      const compiled = compile(fn, { ...FULL, backend });
      const x = randn([10, 257, 160], { requiresGrad: true });
      const out = compiled(DTensor.fromLocal(x, mesh, [Partial()]) as DTensor) as DTensor;
      out.toLocal().sum().backward();
      const meta = backward[0]?.graph.placeholders.at(-1)?.metas[0] as ValueMeta;
      assert.deepEqual(meta.shape, out._localTensor.shape);
      const [, rows, columns] = meta.shape as [number, number, number];
      assert.deepEqual(meta.strides, [rows * columns, columns, 1]);
    });
  });
});

describe('a compiled function of a value that is still on its way', () => {
  leavesNoMemory();

  it('seed 001.17: waits for it first, and saves what it waited for', async () => {
    await onMesh(2, async (mesh) => {
      const { backend, forward, backward } = recordingBackend();
      const fn = (x: Tensor): Tensor => x.sin().sin();
      const compiled = compile(fn, { ...FULL, backend });
      await assertAsEager(fn, compiled, async (run) => {
        manualSeed(17);
        const x = randn([4, 4], { requiresGrad: true });
        const gathered = DTensor.fromLocal(x, mesh, [Shard(0)]).redistribute(mesh, [Replicate()], {
          asyncOp: true,
        }) as DTensor;
        const out = run(gathered.toLocal());
        out.sum().backward();
        return factsOf([out, x.grad]);
      });
      assert.deepEqual(forward.map(opsOf), [['waitTensor', 'sin', 'sin']]);
      const [{ graph }] = forward as [GraphModule];
      const { nodes, outputs, placeholders } = graph;
      const indexOf = (value: Value): number => ('node' in value ? nodes.indexOf(value.node) : -1);
      const [first, ...saved] = outputs.map(indexOf);
      const calls = nodes.flatMap((node, i) => (node.kind === 'call' ? [i] : []));
      assert.equal(first, calls[2]);
      const allowed = [calls[0], nodes.indexOf(placeholders[0] as Node)];
      assert.ok(saved.includes(calls[0] as number), String(saved));
      assert.ok(
        saved.every((i) => allowed.includes(i)),
        String(saved),
      );
      assert.deepEqual(
        backward.flatMap(opsOf).filter((name) => /all|reduce|wait|gather/i.test(name)),
        [],
      );
    });
  });
});
