/** A peer in its own process: reads a program per line and writes an answer per line. */
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type { Answer, Program } from './program.js';

/** PyTorch in a Python process. */
export class TorchPeer {
  /** Its name and version. */
  readonly name: string;
  private readonly child: ReturnType<typeof spawn>;
  private readonly lines: AsyncIterator<string>;

  private constructor(child: ReturnType<typeof spawn>, lines: AsyncIterator<string>, name: string) {
    this.child = child;
    this.lines = lines;
    this.name = name;
  }

  /** @throws Error if this Python has no PyTorch */
  static async start(python: string): Promise<TorchPeer> {
    const child = spawn(python, [fileURLToPath(new URL('torch_machine.py', import.meta.url))], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    const failed = new Promise<never>((_, reject) => child.once('error', reject));
    failed.catch(() => {});
    const lines = createInterface({ input: child.stdout as NodeJS.ReadableStream })[
      Symbol.asyncIterator
    ]();
    const first = await Promise.race([lines.next(), failed]);
    if (first.done === true)
      throw new Error(
        `${python} cannot import torch: on Debian it is python3-torch, elsewhere name a ` +
          'Python that can, --python <path>',
      );
    return new TorchPeer(child, lines, (JSON.parse(first.value) as { peer: string }).peer);
  }

  /** Runs a program; null if it crashes the peer. */
  async run(program: Program): Promise<Answer | null> {
    this.child.stdin?.write(`${JSON.stringify(program)}\n`);
    const line = await this.lines.next();
    if (line.done === true) throw new Error(`the peer ended in program ${program.seed}`);
    return JSON.parse(line.value) as Answer | null;
  }

  stop(): void {
    this.child.stdin?.end();
  }
}
