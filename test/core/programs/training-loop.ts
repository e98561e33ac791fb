/**
 * An eager training loop that frees nothing explicitly. Prints the peaks of the first 200 steps and
 * of all later ones: bytes on the device, and resident bytes of the process. usage:
 * training-loop.ts device steps
 */
import { type DeviceName, memory, nn, optim, rand } from '../../../lib/index.js';

const device = process.argv[2] as DeviceName;
const steps = Number(process.argv[3]);
const model = new nn.Sequential(new nn.Linear(32, 64), new nn.ReLU(), new nn.Linear(64, 1)).to(
  device,
);
const optimizer = new optim.Adam(model.parameters(), { lr: 1e-3 });
const x = rand([16, 32], { device });

function run(count: number): { allocated: number; reserved: number; rss: number } {
  memory.resetPeak(device);
  let rss = 0;
  for (let step = 0; step < count; step++) {
    const loss = model(x).square().mean();
    loss.backward();
    optimizer.step();
    optimizer.zeroGrad();
    if (step % 50 === 49) rss = Math.max(rss, process.memoryUsage().rss);
  }
  const { peakAllocatedBytes, peakReservedBytes } = memory.stats(device);
  return { allocated: peakAllocatedBytes, reserved: peakReservedBytes, rss };
}

const early = run(200);
const late = run(steps - 200);
console.log(JSON.stringify({ early, late }));
