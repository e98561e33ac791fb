/**
 * Our worker for the GPU rows: a process that reads requests and writes replies as lines of JSON.
 *
 *   {"prepare": job}   -> {"error": of samples, as a fraction of the tolerance of the dtype}; {} without samples
 *   {"time": calls, "warm": calls before}    -> {"us": a call}
 *   {"drop": true}     -> {}
 */
import { createInterface } from 'node:readline';
import { cuda, memory, scope, setFloat32MatmulPrecision } from '../../lib/index.js';
import type { Job } from './rows.js';
import { sampleError } from './sample.js';
import { prepare, type Work } from './work.js';

let work: Work | null = null;
let isHost = false;
let turn = 0;

interface Request {
  prepare?: Job;
  time?: number;
  warm?: number;
}

function run(calls: number): void {
  for (let i = 0; i < calls; i++) scope(() => void (work as Work).call(turn++));
}

/** Times a batch between events, after calls that wake the device up. */
function deviceMicroseconds(calls: number, warm: number): number {
  const [begin, end] = [
    new cuda.Event({ enableTiming: true }),
    new cuda.Event({ enableTiming: true }),
  ];
  run(warm);
  begin.record();
  run(calls);
  end.record();
  end.synchronize();
  return (begin.elapsedTime(end) * 1e3) / calls;
}

function hostMicroseconds(calls: number): number {
  const begin = performance.now();
  for (let i = 0; i < calls; i++) (work as Work).call(i);
  cuda.synchronize();
  return ((performance.now() - begin) * 1e3) / calls;
}

async function answer(request: Request): Promise<object> {
  if (request.prepare !== undefined) {
    const { prepare: job } = request;
    setFloat32MatmulPrecision(job.precision ?? 'highest');
    work = prepare(job);
    isHost = job.host === true;
    const error = await sampleError(work, job);
    run(isHost ? 20_000 : 3);
    cuda.synchronize();
    return { error };
  }
  if (request.time !== undefined)
    return {
      us: isHost
        ? hostMicroseconds(request.time)
        : deviceMicroseconds(request.time, request.warm ?? 0),
    };
  work = null;
  memory.collect();
  cuda.emptyCache();
  return {};
}

for await (const line of createInterface({ input: process.stdin })) {
  try {
    console.log(JSON.stringify(await answer(JSON.parse(line) as Request)));
  } catch (error) {
    console.log(JSON.stringify({ failed: (error as Error).message }));
  }
}
