/**
 * Where the time of a training step goes: the step of bench/train-step.ts, profiled. Prints the
 * kernels, the ops and the modules that take longest, and writes the trace for Perfetto.
 *
 *   npm run bench:step-profile -- [124m | 1.5b | tiny] [batch] [--events] [--output trace.json]
 *
 * `tiny` runs on the CPU too. `--events` times GPUs without CUPTI.
 */
import { parseArgs } from 'node:util';
import { amp, bfloat16, cuda, optim, profiler, randint, scope, type Tensor } from '../lib/index.js';
import { Gpt, SIZES } from './gpt.js';
import { runProgram } from './program.js';

const TINY = { vocabulary: 256, width: 64, heads: 4, hidden: 256, layers: 2, context: 64 };
const WARM_UP = 5;
const STEPS = 3;
const ROWS = 25;

function main(): void {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      events: { type: 'boolean', default: false },
      output: { type: 'string', default: 'build/step-profile.json' },
    },
  });
  const [name = '124m', count = '16'] = positionals;
  const device = name === 'tiny' && !cuda.isAvailable() ? 'cpu' : 'cuda';
  const size = name === 'tiny' ? TINY : SIZES[name as keyof typeof SIZES];
  const model = new Gpt(size, device);
  const optimizer = new optim.AdamW([...model.parameters()], { lr: 1e-4, fused: true });
  const draw = (): Tensor => randint(0, size.vocabulary, [Number(count), size.context], { device });
  const [input, target] = [draw(), draw()];
  const step = (): void =>
    scope(() => {
      const loss = profiler.recordFunction('forward', () =>
        amp.autocast({ deviceType: device, dtype: bfloat16 }, () => model(input, target)),
      );
      loss.backward();
      optimizer.step();
      optimizer.zeroGrad();
    });
  for (let i = 0; i < WARM_UP; i++) step();
  if (device === 'cuda') cuda.synchronize();
  const prof = profiler.profile(
    {
      activities: device === 'cuda' ? ['cpu', 'cuda'] : ['cpu'],
      recordShapes: true,
      withModules: true,
      profileMemory: true,
      deviceTimer: values.events ? 'events' : 'cupti',
    },
    (p) => {
      for (let i = 0; i < STEPS; i++) {
        step();
        p.step();
      }
    },
  );
  const sortBy = 'selfDeviceTimeTotal';
  for (const options of [
    { groupByKernel: true },
    { groupByInputShape: true },
    { groupByModule: true },
  ])
    console.log(`${prof.keyAverages(options).table({ sortBy, rowLimit: ROWS })}\n`);
  prof.exportChromeTrace(values.output);
  const timer = prof.deviceTimer ?? 'streams of the CPU';
  console.log(`${STEPS} steps of ${name}, timed by ${timer} ${prof.whyNoCupti}`);
  console.log(`${values.output}: open it in https://ui.perfetto.dev`);
}

await runProgram(main);
