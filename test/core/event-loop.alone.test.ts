/** The event loop runs while native code works. */
import assert from 'node:assert/strict';
import { existsSync, openSync, readSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { memory, nn, optim, rand, type Tensor } from '../../lib/index.js';

const schedule = existsSync('/proc/self/schedstat') ? openSync('/proc/self/schedstat', 'r') : null;
const text = Buffer.alloc(80); // one for all, so that measuring leaves no garbage

/**
 * In milliseconds, since the process began: now, for how long this thread could have run and did
 * not, and how long all threads of the process ran.
 */
function times(): { now: number; waited: number; ran: number } {
  const waited =
    schedule === null
      ? 0
      : Number(text.toString('latin1', 0, readSync(schedule, text, 0, 80, 0)).split(' ')[1]) / 1e6;
  const { user, system } = process.cpuUsage();
  return { now: performance.now(), waited, ran: (user + system) / 1e3 };
}

interface Stalls {
  /** The longest, not counting for how long this thread waited for a processor, whoever had it. */
  readonly longest: number;
  /** All, not counting for how long other programs had it; the shortest first. */
  readonly own: readonly number[];
}

/** For how long the event loop kept a timer waiting while `work` was awaited, in milliseconds. */
async function stallsDuring(work: () => Promise<unknown>): Promise<Stalls> {
  const resolution = 1;
  const done = work();
  await sleep(5); // what was called just now, and its compilation by V8, is not waiting
  let longest = 0;
  const own: number[] = [];
  let before = times();
  const timer = setInterval(() => {
    const after = times();
    const [passed, waited, ran] = [
      after.now - before.now,
      after.waited - before.waited,
      after.ran - before.ran,
    ];
    const others = Math.max(0, passed * availableParallelism() - ran);
    longest = Math.max(longest, passed - resolution - waited);
    // With half a processor for other programs, it is not known for whom this thread waited.
    own.push(passed - resolution - (others > passed / 2 ? waited : Math.min(waited, others)));
    before = after;
  }, resolution);
  await done;
  clearInterval(timer);
  assert.ok(own.length > 0, 'it never turned');
  return { longest, own: own.sort((a, b) => a - b) };
}

/**
 * Among all, the longest may be a collection of V8's, or a slice of the scheduler that a native
 * thread had.
 */
function assertShort({ longest, own }: Stalls): void {
  const of100 = (n: number): number => own[Math.ceil((own.length * n) / 100) - 1] as number;
  assert.ok(longest <= 2, `${longest} ms`);
  assert.ok(
    of100(98) <= 2 && of100(100) <= 50,
    `98 of 100 at most ${of100(98)} ms, the longest ${of100(100)} ms, of ${own.length}`,
  );
}

describe('the event loop', function () {
  this.timeout(60000);
  // the longest stall is 0.4 ms, but the machine's own host may take a processor away
  this.retries(20);

  it('stalls at most 2 ms while a product with as much work as 4096-cubed is awaited', async () => {
    // Results of 64 MiB outside of V8's heap would make V8 collect in each product.
    const [a, b] = [rand([4096, 8192]), rand([8192, 2048])];
    await a.mm(b).read();
    memory.collect();
    assertShort(await stallsDuring(() => a.mm(b).read()));
  });

  it('stalls at most 2 ms while a training step is awaited', async () => {
    const net = new nn.Sequential(
      new nn.Linear(1024, 4096),
      new nn.GELU(),
      new nn.LayerNorm(4096),
      new nn.Linear(4096, 1024),
    );
    const optimizer = new optim.AdamW(net.parameters(), { lr: 1e-3 });
    const lastParameter = [...net.parameters()].at(-1) as Tensor;
    const x = rand([1024, 1024]);
    const step = (): Promise<unknown> => {
      const loss = net(x).sub(x).square().mean();
      optimizer.zeroGrad();
      loss.backward();
      optimizer.step();
      return lastParameter.read(); // what the step writes last
    };
    await step();
    assertShort(await stallsDuring(step));
  });
});
