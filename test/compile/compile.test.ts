/** `compile` captures and replays functions; FakeTensorMode runs them on shapes. */
import assert from 'node:assert/strict';
import { FakeTensorMode } from '../../lib/compile/index.js';
import {
  CompileError,
  compile,
  manualSeed,
  memory,
  nn,
  noGrad,
  ones,
  rand,
  randn,
  type Tensor,
  tensor,
  zeros,
} from '../../lib/index.js';
import { CompileCounter } from '../../lib/testing/index.js';

const values = (t: Tensor | null | undefined): number[] =>
  Array.from((t as Tensor).toTypedArray() as Float32Array);

describe('compile', () => {
  it('captures once for each shape and plain value, and replays with equal results', () => {
    const counter = CompileCounter();
    const fn = compile((x: Tensor, k: number) => x.mul(k).add(1).sum(), {
      backend: counter,
      fullgraph: true,
    });
    assert.equal(fn(ones([3]), 2).item(), 9);
    assert.equal(fn(ones([3]).mul(2), 2).item(), 15);
    assert.equal(counter.frameCount, 1);
    assert.equal(counter.opCount, 3);
    fn(ones([4]), 2);
    fn(ones([4]), 3);
    assert.equal(counter.frameCount, 3);
  });

  it('prints a readable graph', () => {
    const counter = CompileCounter();
    compile((x: Tensor) => x.sin().sin(), { backend: counter, fullgraph: true })(ones([2]));
    assert.equal(
      String(counter.graphs[0]),
      '%arg: float32[2] = input\n%sin: float32[2] = sin(%arg)\n%sin_1: float32[2] = sin(%sin)\nreturn %sin_1',
    );
  });

  it('gives the same gradients', () => {
    const model = new nn.Sequential(new nn.Linear(4, 8), new nn.GELU(), new nn.Linear(8, 1));
    const x = randn([5, 4]);
    model(x).square().mean().backward();
    const expected = [...model.parameters()].map((p) => values(p.grad));
    model.zeroGrad();
    compile((input: Tensor) => model(input).square().mean(), { fullgraph: true })(x).backward();
    assert.deepEqual(
      [...model.parameters()].map((p) => values(p.grad)),
      expected,
    );
  });

  it('replays in-place changes of the argument and returns the same object', () => {
    const fn = compile((w: Tensor, x: Tensor) => w.copy_(x.add(1)), { fullgraph: true });
    noGrad(() => {
      for (const v of [1, 2]) {
        const w = zeros([2]);
        assert.equal(fn(w, tensor([v, v])), w);
        assert.deepEqual(values(w), [v + 1, v + 1]);
        assert.equal(w._version, 1);
      }
    });
  });

  it('replays the resizing of a storage after the last read', () => {
    const fn = compile((x: Tensor) => {
      const y = x.sin();
      x.untypedStorage().resize_(0);
      return y.cos();
    });
    noGrad(() => {
      const x = randn([10]);
      const expected = values(x.sin().cos());
      assert.deepEqual(values(fn(x)), expected);
      assert.equal(x.untypedStorage().size(), 0);
    });
  });

  it('draws new random numbers at every run, equal to those of the uncompiled function', () => {
    const fn = (x: Tensor): Tensor => x.add(rand([3]));
    const compiled = compile(fn, { fullgraph: true });
    const x = zeros([3]);
    manualSeed(5);
    const expected = [values(fn(x)), values(fn(x))];
    manualSeed(5);
    assert.deepEqual([values(compiled(x)), values(compiled(x))], expected);
  });

  it('refuses to read a value with fullgraph, and runs the function uncompiled without it', () => {
    const fn = (x: Tensor): Tensor => ((x.sum().item() as number) > 0 ? x.add(1) : x);
    assert.throws(() => compile(fn, { fullgraph: true })(ones([2])), CompileError);
    assert.deepEqual(values(compile(fn)(ones([2]))), [2, 2]);
  });
});

describe('FakeTensorMode', () => {
  it('runs a model that is larger than the machine on shapes alone', () => {
    const before = memory.stats().allocatedBytes;
    const shape = new FakeTensorMode().run(
      () => new nn.Linear(1_000_000, 1_000_000)(zeros([64, 1_000_000])).shape,
    );
    assert.deepEqual(shape, [64, 1_000_000]);
    assert.equal(memory.stats().allocatedBytes, before);
  });

  it('reports wrong shapes as eager ops do', () => {
    assert.throws(
      () => new FakeTensorMode().run(() => zeros([2, 3]).matmul(zeros([4, 5]))),
      /inner sizes differ/,
    );
  });

  it('says that fake tensors have no values if one is read', () => {
    const says =
      /^FakeTensorMode: a value of float32\[\] was read, and fake tensors have shapes but no values\. Inside run\(\), decide by shapes; /;
    assert.throws(
      () => new FakeTensorMode().run(() => zeros([2, 3]).sum().item()),
      (error) =>
        error instanceof CompileError &&
        says.test(error.message) &&
        !/compile|graph/.test(error.message),
    );
  });
});
