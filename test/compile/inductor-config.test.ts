/** The settings of backend inductor, and what the graphs of a call execute. */
import assert from 'node:assert/strict';
import { inductor, runAndGetKernelCode } from '../../lib/compile/index.js';
import { functional } from '../../lib/distributed.js';
import { ArgumentError, compile, nn, randn, type Tensor } from '../../lib/index.js';
import { CompileCounterWithBackend } from '../../lib/testing/index.js';
import { onRanks } from '../distributed/support/on-ranks.js';

const { config } = inductor;

/** The ops of a text in order. */
const opsIn = (code: string): string[] =>
  code.split('\n').flatMap((line) => /^(?:[\w, ]+ = )?(\w+)\(/.exec(line)?.[1] ?? []);

describe('inductor.config', () => {
  afterEach(() => {
    config.reorderForComputeCommOverlap = null;
    config.fallbackRandom = false;
  });

  it('captures a function anew for another order, and reuses none of the other', async () => {
    const fn = (x: Tensor, w: Tensor): Tensor[] => [
      functional.allReduce(x, 'sum').mul(2),
      w.matmul(w),
    ];
    await onRanks(2, () => {
      const counter = CompileCounterWithBackend('inductor');
      const compiled = compile(fn, { backend: counter, fullgraph: true });
      const [x, w] = [randn([8, 8]), randn([4, 4])];
      const orderWith = (value: boolean | null): string => {
        config.reorderForComputeCommOverlap = value;
        const [, [code]] = runAndGetKernelCode(compiled, x, w);
        return opsIn(code as string).join(' ');
      };
      const inOrder = 'allReduce waitTensor mul matmul';
      const beside = 'allReduce matmul waitTensor mul';
      // A product of a microsecond is no hundredth of the time.
      assert.deepEqual([null, true, false, true].map(orderWith), [
        inOrder,
        beside,
        inOrder,
        beside,
      ]);
      assert.equal(counter.frameCount, 3);
      config.reorderForComputeCommOverlap = null;
      return Promise.resolve();
    });
  });

  it('accepts fallbackRandom, and refuses what is no boolean and other settings', () => {
    config.fallbackRandom = true;
    assert.equal(config.fallbackRandom, true);
    for (const name of ['reorderForComputeCommOverlap', 'fallbackRandom'] as const)
      assert.throws(() => {
        config[name] = 1 as never;
      }, ArgumentError);
    assert.throws(() => {
      (config as { other?: boolean }).other = true;
    }, TypeError);
  });
});

describe('runAndGetKernelCode', () => {
  it('shows the forward and the backward graph, each once, with the result', () => {
    const model = new nn.Sequential(new nn.Linear(4, 4), new nn.SiLU());
    const compiled = compile(model, { backend: 'inductor', fullgraph: true });
    const x = randn([2, 4]);
    const [result, codes] = runAndGetKernelCode(() => {
      compiled(x).sum().backward();
      return compiled(x);
    });
    assert.deepEqual(result.tolist(), model(x).tolist());
    assert.deepEqual(
      codes.map((code) => code.split(':')[0]),
      ['// the forward graph of Sequential', '// the backward graph of Sequential'],
    );
    assert.match(codes[0] as string, /^buf1 = silu\(buf0\)/m);
  });

  it('says for each backend how its graph runs, names fused steps and what is overwritten', () => {
    const fn = (t: Tensor): Tensor => t.sin().cos().sum().add_(1);
    const textOf = (backend: 'eager' | 'aot_eager' | 'inductor'): string => {
      const [, codes] = runAndGetKernelCode(compile(fn, { backend, fullgraph: true }), randn([3]));
      assert.equal(codes.length, 1);
      return codes[0] as string;
    };
    assert.match(textOf('eager'), /^\/\/ the graph of fn: 4 calls op by op\n/);
    assert.match(textOf('aot_eager'), /: 4 commands in 1 segment, 0 calls one by one\n/);
    assert.match(textOf('aot_eager'), /^add_\(buf2, buf2, 1\) {2}alpha=1/m);
    assert.match(
      textOf('inductor'),
      /= fused_sin_cos\(primal\) {2}\/\/ t0 = sin\(i0\); t1 = cos\(t0\) /,
    );
  });

  it('returns no text where no graph runs, and refuses asynchronous functions', () => {
    const plain = runAndGetKernelCode((a: number) => a + 1, 2);
    assert.deepEqual(plain, [3, []]);
    assert.throws(() => runAndGetKernelCode(null as never), ArgumentError);
    assert.throws(() => runAndGetKernelCode(() => Promise.resolve(1)), /synchronous/);
  });
});
