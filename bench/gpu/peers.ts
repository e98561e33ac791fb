/**
 * The two processes that rows are measured in: ours and PyTorch's, each asked by a line of JSON and
 * answering with one.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const here = fileURLToPath(import.meta.url);
const folder = path.dirname(here);

/** `torch.compile` as it is, and with its search for the fastest kernels. */
export type PeerMode = 'eager' | 'compile' | 'max-autotune';

export interface Reply {
  us?: number;
  error?: number;
  failed?: string;
  /** The mode is no other than one before. */
  none?: boolean;
  torch?: string;
  gpu?: string;
}

/** A process that measures. */
export class Side {
  readonly name: string;
  private readonly child: ChildProcess;
  private readonly replies: AsyncIterator<string>;
  private last = '';
  private told: string[] = [];

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
      this.told.push(...this.last.trim().split('\n'));
    });
    this.child.on('error', (error) => (this.last = error.message));
    this.replies = createInterface({ input: this.child.stdout as NodeJS.ReadableStream })[
      Symbol.asyncIterator
    ]();
  }

  /** What it cannot do is in `failed`. @throws Error where the process has ended */
  async ask(request: object): Promise<Reply> {
    this.child.stdin?.write(`${JSON.stringify(request)}\n`);
    for (;;) {
      const { value, done } = await this.replies.next();
      if (done) throw new Error(`${this.name} has ended: ${this.last.trim().split('\n').pop()}`);
      const text = (value as string).replace('\x1e', '');
      if (text.startsWith('{')) return JSON.parse(text) as Reply; // compilers print as well
    }
  }

  /** What it wrote beside its replies since the last call. */
  takeTold(): string[] {
    const { told } = this;
    this.told = [];
    return told;
  }

  end(): void {
    this.child.stdin?.end();
    this.child.kill();
  }
}

/** It tells who computes its products. */
export const ourSide = (): Side =>
  new Side(
    'ours',
    process.execPath,
    [...process.execArgv, path.join(folder, `ours${path.extname(here)}`)],
    { ...process.env, SHARDWISE_DEBUG: 'matmul' },
  );
export const torchSide = (python: string): Side =>
  new Side('torch', python, [path.join(folder, 'peer_torch.py')]);

/**
 * Microseconds of a raw launch on this machine, by bench/native/launch_loop.cu; null where it was
 * not built.
 */
export function rawLaunch(): number | null {
  const { stdout, status } = spawnSync(
    process.env['LAUNCH_LOOP'] ?? path.join('build', 'selftest', 'launch_loop'),
    { encoding: 'utf8' },
  );
  return status === 0 ? (JSON.parse(stdout) as { value: number }).value : null;
}

/** Clock and power of the first GPU, sampled while it works. */
export class Meter {
  private child = this.watch('power.draw.instant');
  private samples: { mhz: number; watts: number }[] = [];

  /**
   * The power of the moment; older drivers have only a mean over a second, longer than a row takes.
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
