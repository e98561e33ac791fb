/**
 * The two processes that measure rows, our worker and PyTorch. Requests and replies are lines of
 * JSON.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const here = fileURLToPath(import.meta.url);
const folder = path.dirname(here);

/** Modes of PyTorch; `max-autotune` is `torch.compile` with its search for the fastest kernels. */
export type PeerMode = 'eager' | 'compile' | 'max-autotune';

export interface Reply {
  us?: number;
  error?: number;
  failed?: string;
  /** True if the mode is the same as an earlier one. */
  none?: boolean;
  torch?: string;
  gpu?: string;
}

/** A process that measures rows on request. */
export class MeasuringProcess {
  readonly name: string;
  private readonly child: ChildProcess;
  private readonly replies: AsyncIterator<string>;
  private last = '';
  private output: string[] = [];

  constructor(
    name: string,
    command: string,
    args: readonly string[],
    env: NodeJS.ProcessEnv = process.env,
  ) {
    this.name = name;
    this.child = spawn(command, args, { stdio: ['pipe', 'pipe', 'pipe'], env });
    this.child.stderr?.on('data', (text) => {
      this.last = String(text);
      this.output.push(...this.last.trim().split('\n'));
    });
    this.child.on('error', (error) => (this.last = error.message));
    this.replies = createInterface({ input: this.child.stdout as NodeJS.ReadableStream })[
      Symbol.asyncIterator
    ]();
  }

  /**
   * Sends a request. A job that fails is reported in `failed`. @throws Error if the process has
   * ended
   */
  async ask(request: object): Promise<Reply> {
    this.child.stdin?.write(`${JSON.stringify(request)}\n`);
    for (;;) {
      const { value, done } = await this.replies.next();
      if (done) throw new Error(`${this.name} has ended: ${this.last.trim().split('\n').pop()}`);
      const text = (value as string).replace('\x1e', '');
      if (text.startsWith('{')) return JSON.parse(text) as Reply; // compilers print as well
    }
  }

  /** The other output of the process since the last call. */
  takeOutput(): string[] {
    const { output } = this;
    this.output = [];
    return output;
  }

  end(): void {
    this.child.stdin?.end();
    this.child.kill();
  }
}

/** Our worker, which prints the kernel that computes each matmul. */
export const ourWorker = (): MeasuringProcess =>
  new MeasuringProcess(
    'ours',
    process.execPath,
    [...process.execArgv, path.join(folder, `worker${path.extname(here)}`)],
    { ...process.env, SHARDWISE_DEBUG: 'matmul' },
  );
export const torchPeer = (python: string): MeasuringProcess =>
  new MeasuringProcess('torch', python, [path.join(folder, 'peer_torch.py')]);

/**
 * Microseconds of a raw launch on this machine, measured by bench/native/launch_loop.cu; null if it
 * was not built.
 */
export function rawLaunch(): number | null {
  const { stdout, status } = spawnSync(
    process.env['LAUNCH_LOOP'] ?? path.join('build', 'selftest', 'launch_loop'),
    { encoding: 'utf8' },
  );
  return status === 0 ? (JSON.parse(stdout) as { value: number }).value : null;
}

/** Samples clock and power of the first GPU while it works. */
export class Meter {
  private child = this.watch('power.draw.instant');
  private samples: { mhz: number; watts: number }[] = [];

  /**
   * Samples instantaneous power. Older drivers have only a mean over a second, longer than a row
   * takes.
   */
  private watch(power: 'power.draw.instant' | 'power.draw'): ChildProcess {
    // the one that is measured
    const device = process.env['CUDA_VISIBLE_DEVICES']?.split(',')[0] || '0';
    const child = spawn(
      'nvidia-smi',
      [
        '-i',
        device,
        `--query-gpu=clocks.sm,${power}`,
        '--format=csv,noheader,nounits',
        '-lms',
        '20',
      ],
      { stdio: ['ignore', 'pipe', 'ignore'] },
    );
    child.on('error', () => {}); // then there are no samples
    child.once('exit', (status) => {
      if (status !== 0 && status !== null && power !== 'power.draw')
        this.child = this.watch('power.draw');
    });
    child.stdout?.on('data', (text) => {
      for (const line of String(text).trim().split('\n')) {
        const [mhz, watts] = line.split(',').map(Number);
        if (mhz !== undefined && watts !== undefined && mhz > 0 && watts > 0)
          this.samples.push({ mhz, watts });
      }
    });
    return child;
  }

  /** The lowest clock and the highest power since the last call. */
  take(): { mhz: number; watts: number } | null {
    const { samples } = this;
    this.samples = [];
    return samples.length === 0
      ? null
      : {
          mhz: Math.min(...samples.map((s) => s.mhz)),
          watts: Math.max(...samples.map((s) => s.watts)),
        };
  }

  end(): void {
    this.child.kill();
  }
}
