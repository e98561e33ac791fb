/**
 * Collectives and distributed tensors between ranks that are processes: latency, bus bandwidth,
 * host time. The same rows as peer_collectives.py. `us` is a call of a long batch, whichever of
 * host and device is slower; `deviceUs` the device's share, its calls queued behind large ones;
 * `hostUs` the host's. usage: collectives.ts [cpu|cuda] [ranks]
 */
import { fileURLToPath } from 'node:url';
import {
  allGatherIntoTensor,
  allReduce,
  barrier,
  DTensor,
  destroyProcessGroup,
  getRank,
  getWorldSize,
  initDeviceMesh,
  initProcessGroup,
  launch,
  Replicate,
  reduceScatterTensor,
  Shard,
} from '../lib/distributed.js';
import { bfloat16, cuda, noGrad, ones, scope, type Tensor } from '../lib/index.js';
import { median } from './figures.js';

const device = (process.argv[2] ?? 'cpu') as 'cpu' | 'cuda';
const ranks = Number(process.argv[3] ?? (device === 'cuda' ? cuda.deviceCount() : 4));

interface Row {
  name: string;
  us: number;
  hostUs: number;
  /** Device time of calls that the host issued before the device started; GPUs only. */
  deviceUs?: number | undefined;
  /** Bandwidth over the slowest link in GB/s, as defined by nccl-tests. */
  busGBps?: number;
}

function print({ name, us, hostUs, deviceUs, busGBps }: Row): void {
  if (getRank() !== 0) return;
  const rounded = {
    name,
    us: +us.toFixed(2),
    hostUs: +hostUs.toFixed(2),
    deviceUs: deviceUs && +deviceUs.toFixed(2),
    busGBps: busGBps && +busGBps.toFixed(1),
  };
  console.log(JSON.stringify(rounded));
}

/** A tensor that is ready when all earlier calls have run on every rank. */
function settled(): Tensor {
  const t = ones([1], { device });
  allReduce(t);
  return t.add(0);
}

function repeat(work: () => void, calls: number): void {
  for (let i = 0; i < calls; i++) work();
}

/** Calls after which the JavaScript engine has compiled the code. */
const WARM_UP = 5000;

/**
 * Microseconds a call until it is done, by the device's clock where it has one, and until
 * JavaScript goes on.
 */
async function timesOf(
  work: () => void,
  calls: number,
  warmUp = calls < 500 ? 200 : WARM_UP,
): Promise<{ us: number; hostUs: number }> {
  noGrad(() => scope(() => repeat(work, warmUp)));
  await settled().read();
  const totals: { us: number; hostUs: number }[] = [];
  for (let round = 0; round < 5; round++) {
    await barrier();
    const [before, after] =
      device === 'cuda'
        ? [new cuda.Event({ enableTiming: true }), new cuda.Event({ enableTiming: true })]
        : [];
    before?.record();
    const start = performance.now();
    noGrad(() => scope(() => repeat(work, calls)));
    const host = performance.now();
    const last = settled();
    after?.record();
    await last.read();
    const ms = before && after ? before.elapsedTime(after) : performance.now() - start;
    totals.push({ us: (ms * 1e3) / calls, hostUs: ((host - start) * 1e3) / calls });
  }
  return totals.sort((a, b) => a.us - b.us)[2] as { us: number; hostUs: number };
}

/**
 * Fewer calls than {@link timesOf} makes: the host has to be done with them while the sums before
 * them are on their way.
 */
const CALLS_BEHIND = 200;

/**
 * Microseconds per call on the device, queued after sums of 1 GiB that take some milliseconds each.
 */
async function deviceTimeOf(work: () => void): Promise<number> {
  const large = ones([2 ** 29], { dtype: bfloat16, device });
  const times: number[] = [];
  for (let round = 0; round < 5; round++) {
    await barrier();
    const [before, after] = [
      new cuda.Event({ enableTiming: true }),
      new cuda.Event({ enableTiming: true }),
    ];
    const last = noGrad(() => {
      repeat(() => void allReduce(large, { op: 'max' }), 3);
      const done = large.narrow(0, 0, 1).add(0); // this stream waits for what it reads
      before.record();
      repeat(work, CALLS_BEHIND);
      done.dispose();
      return settled();
    });
    after.record();
    await last.read();
    times.push((before.elapsedTime(after) * 1e3) / (CALLS_BEHIND + 1));
  }
  return median(times);
}

async function allTimesOf(work: () => void, bytes: number): Promise<Omit<Row, 'name'>> {
  const times = await timesOf(work, bytes >= 2 ** 24 ? 20 : 500);
  return device === 'cuda' && bytes <= 2 ** 22
    ? { ...times, deviceUs: await deviceTimeOf(work) }
    : times;
}

async function collectives(world: number): Promise<void> {
  const most = device === 'cuda' ? 2 ** 30 : 2 ** 26;
  for (const bytes of [8, 2 ** 14, 2 ** 16, 2 ** 18, 2 ** 20, 2 ** 22, 2 ** 24, 2 ** 28, 2 ** 30]) {
    if (bytes > most) continue;
    const whole = ones([bytes / 2], { dtype: bfloat16, device });
    const bus = (us: number, factor: number): number =>
      ((bytes / us) * factor * (world - 1)) / world / 1e3;
    const reduce = await allTimesOf(() => allReduce(whole), bytes);
    print({ name: `all-reduce ${bytes} B, ${world} ranks`, ...reduce, busGBps: bus(reduce.us, 2) });
    if (bytes < 2 ** 16) continue;
    const part = ones([bytes / 2 / world], { dtype: bfloat16, device });
    const gather = await allTimesOf(() => allGatherIntoTensor(whole, part), bytes);
    print({ name: `all-gather ${bytes} B, ${world} ranks`, ...gather, busGBps: bus(gather.us, 1) });
    const scatter = await allTimesOf(() => reduceScatterTensor(part, whole), bytes);
    print({
      name: `reduce-scatter ${bytes} B, ${world} ranks`,
      ...scatter,
      busGBps: bus(scatter.us, 1),
    });
  }
}

async function distributedTensors(world: number): Promise<void> {
  const mesh = initDeviceMesh(device, [world]);
  const a = DTensor.fromLocal(ones([8, 8], { device }), mesh, [Shard(0)]);
  const w = DTensor.fromLocal(ones([8, 8], { device }), mesh, [Replicate()]);
  const rows: Record<string, () => unknown> = {
    'DTensor add, Shard(0) + Shard(0)': () => a.add(a),
    'DTensor matmul, Shard(0) by Replicate': () => a.matmul(w),
    'redistribute Shard(0) to Replicate, 8x8': () => a.redistribute(mesh, [Replicate()]),
  };
  for (const [name, work] of Object.entries(rows)) {
    const times = await timesOf(() => void work(), 500);
    print({ name: `${name}, ${world} ranks`, ...times });
  }
}

if (process.env['RANK'] === undefined)
  await launch(ranks, fileURLToPath(import.meta.url), {
    args: [device, String(ranks)],
    prefixOutput: false,
  });
else {
  await initProcessGroup();
  await collectives(getWorldSize());
  await distributedTensors(getWorldSize());
  destroyProcessGroup();
}
