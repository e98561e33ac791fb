/**
 * A training step as a program makes it: the GPT of GPT-2's sizes under bfloat16 autocast, with
 * fused AdamW. Time of the step, of the host, and of the optimizer alone; most memory; strides of
 * the gradients. One JSON object a line.
 *
 *   scripts/compile && node build/compiled/bench/train-step.js [124m | 1.5b] [batch]
 */
import { amp, bfloat16, cuda, memory, optim, randint, scope, type Tensor } from '../lib/index.js';
import { median } from './figures.js';
import { Gpt, SIZES } from './gpt.js';
import { requireGpu, runProgram } from './program.js';

async function main(): Promise<void> {
  requireGpu();
  const name = (process.argv[2] ?? '124m') as keyof typeof SIZES;
  const batch = Number(process.argv[3] ?? 16);
  const size = SIZES[name];
  const model = new Gpt(size, 'cuda');
  const parameters = [...model.parameters()];
  const optimizer = new optim.AdamW(parameters, { lr: 1e-4, fused: true });
  const draw = (): Tensor => randint(0, size.vocabulary, [batch, size.context], { device: 'cuda' });
  const [input, target] = [draw(), draw()];
  const hostTimes: number[] = [];
  const step = (): void => {
    const start = performance.now();
    scope(() => {
      const loss = amp.autocast({ deviceType: 'cuda', dtype: bfloat16 }, () =>
        model(input, target),
      );
      loss.backward();
      optimizer.step();
      optimizer.zeroGrad();
    });
    hostTimes.push(performance.now() - start);
  };
  const timed = async (work: () => void, times: number): Promise<number> => {
    const all: number[] = [];
    for (let i = 0; i < times; i++) {
      const start = performance.now();
      work();
      cuda.synchronize();
      all.push(performance.now() - start);
    }
    return median(all);
  };
  for (let i = 0; i < 5; i++) step();
  cuda.synchronize();
  memory.resetPeak('cuda');
  const stepMs = await timed(step, 20);
  const peakGiB = memory.stats('cuda').peakAllocatedBytes / 2 ** 30;
  scope(() =>
    amp.autocast({ deviceType: 'cuda', dtype: bfloat16 }, () => model(input, target)).backward(),
  );
  const transposed = parameters.filter((p) => p.grad?.stride().join() !== p.stride().join()).length;
  const optimizerMs = await timed(() => optimizer.step(), 10);
  const figures = {
    stepMs,
    hostMs: median(hostTimes),
    tokensPerSecond: (batch * size.context * 1000) / stepMs,
    optimizerMs,
    peakGiB,
  };
  const rounded = Object.fromEntries(
    Object.entries(figures).map(([key, value]) => [key, +value.toPrecision(4)]),
  );
  console.log(
    JSON.stringify({
      name: `train ${name} batch ${batch}`,
      ...rounded,
      gradientsOfOtherStrides: transposed,
    }),
  );
}

await runProgram(main);
