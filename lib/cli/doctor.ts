/**
 * `shardwise doctor`: reports devices and libraries of this machine, and for each missing library
 * the reason and what it disables.
 */
import { existsSync, readFileSync } from 'node:fs';
import { release } from 'node:os';
import { findTables, gpuOf, type TableFile } from '../cuda/tables.js';
import type { Addon, NativeDeviceInfo } from '../native/addon.js';
import { type GlooSearch, openGloo, WITHOUT_GLOO } from '../native/gloo.js';
import {
  findLibrary,
  formatVersion,
  optionalLibraries,
  whatIsMissing,
} from '../native/libraries.js';
import { cudaBackendCandidates, loadAddon, openCudaBackend } from '../native/load.js';

interface LibraryReport {
  name: string;
  path: string | null;
  version: string | null;
  without: string;
  tried: { path: string; reason: string }[];
}

/** The shape of `shardwise doctor --json`. */
export interface DoctorReport {
  version: string;
  node: string;
  platform: string;
  glibc: string | null;
  addon: { loaded: true; numKernels: number } | { loaded: false; reason: string };
  cpu: NativeDeviceInfo | null;
  cuda: {
    available: boolean;
    driver: string | null;
    devices: NativeDeviceInfo[];
    backend: { path: string; reason: string | null }[];
  };
  /** For each CUDA device, the files of measured configurations for its model. */
  tables: (readonly TableFile[])[];
  /** For each CUDA device, whether `compile` can generate kernels for it. */
  generatesKernels: boolean[];
  libraries: LibraryReport[];
  gloo: GlooSearch & { without: string };
}

/**
 * Prints the report. Returns the exit code: 1 if the addon itself does not load, 2 if fewer than
 * `gpus` devices can be used.
 */
export function runDoctor(version: string, json: boolean, gpus = 0): number {
  const report = examine(version);
  console.log(
    json ? JSON.stringify(report, null, 2) : describeReport(report, process.stdout.columns),
  );
  const found = report.cuda.devices.length;
  if (report.addon.loaded && found < gpus)
    console.error(`shardwise doctor: --gpus ${gpus}, but ${found} can be used`);
  return exitCode(report, gpus);
}

/** What `shardwise doctor --gpus` exits with. */
export function exitCode({ addon, cuda }: DoctorReport, gpus: number): 0 | 1 | 2 {
  if (!addon.loaded) return 1;
  return cuda.devices.length < gpus ? 2 : 0;
}

/** Examines this machine. */
export function examine(version: string): DoctorReport {
  const report: DoctorReport = {
    version,
    node: process.version,
    platform: `${process.platform}-${process.arch}, kernel ${release()}`,
    glibc: glibcVersion(),
    addon: { loaded: false, reason: '' },
    cpu: null,
    cuda: { available: false, driver: driverVersion(), devices: [], backend: [] },
    tables: [],
    generatesKernels: [],
    libraries: [],
    gloo: { path: null, tried: [], without: WITHOUT_GLOO },
  };
  let addon: Addon;
  try {
    addon = loadAddon();
  } catch (error) {
    report.addon = { loaded: false, reason: (error as Error).message };
    return report;
  }
  report.addon = { loaded: true, numKernels: addon.kernelNames.length };
  report.cpu = addon.deviceInfo(0);
  for (const path of cudaBackendCandidates()) {
    const reason = report.cuda.available ? 'not needed' : openCudaBackend(addon, path);
    report.cuda.backend.push({ path, reason });
    report.cuda.available ||= reason === null;
  }
  for (let i = 0; i < addon.deviceCount('cuda'); i++) {
    report.cuda.devices.push(addon.deviceInfo(1 + i));
    report.tables.push(findTables(addon, gpuOf(addon, 1 + i)).files);
    report.generatesKernels.push(addon.canFuse(1 + i));
  }
  for (const library of optionalLibraries) {
    const { found, tried } = findLibrary(addon, library);
    const version = found ? formatVersion(library, found.version) : null;
    report.libraries.push({
      name: library.name,
      path: found?.path ?? null,
      version,
      without: whatIsMissing(library),
      tried,
    });
  }
  report.gloo = { ...openGloo(addon), without: WITHOUT_GLOO };
  return report;
}

const TITLE_WIDTH = 10;

/** Formats the report as text, for a terminal of so many columns. */
export function describeReport(report: DoctorReport, columns = Number.POSITIVE_INFINITY): string {
  const lines: string[] = [];
  const row = (title: string, text: string): void => {
    const [first = '', ...more] = wrapped(text, columns - TITLE_WIDTH);
    lines.push(title.padEnd(TITLE_WIDTH) + first);
    for (const each of more) lines.push(' '.repeat(TITLE_WIDTH + 2) + each);
  };
  row(
    'shardwise',
    `${report.version}, Node ${report.node} on ` +
      `${report.platform}${report.glibc ? `, glibc ${report.glibc}` : ''}`,
  );
  if (!report.addon.loaded) {
    row('addon', `missing: ${report.addon.reason}`);
    return lines.join('\n');
  }
  row('addon', `loaded, ${report.addon.numKernels} kernels`);
  if (report.cpu) row('cpu', describeDevice(report.cpu, 'threads'));
  if (!mayHaveGpu(report)) {
    row('gpu', `no NVIDIA driver: tensors are on the CPU. ${DRIVER_ADVICE}`);
    describeGloo(report, row);
    return lines.join('\n');
  }
  row('driver', report.cuda.driver ?? 'no NVIDIA driver');
  for (const [i, device] of report.cuda.devices.entries())
    row(`cuda:${i}`, describeDevice(device, 'multiprocessors'));
  if (!report.cuda.available) {
    row('cuda', 'not available');
    if (report.cuda.backend.length === 0)
      row(
        '',
        'cuda-backend.so is neither in build/Release nor in prebuilds: the build left CUDA out. ' +
          'In a clone, SHARDWISE_CUDA=1 npm run build:native builds it with nvcc',
      );
    for (const { path, reason } of report.cuda.backend) row('', `${path}: ${reason}`);
  }
  for (const [i, files] of report.tables.entries())
    for (const text of describeTables(files))
      row(report.tables.length > 1 ? `tuned:${i}` : 'tuned', text);
  if (report.generatesKernels.length > 0) row('fusion', describeFusion(report.generatesKernels));
  for (const library of report.libraries)
    describeOptional(
      library.name,
      library.path && `${library.version}, ${library.path}`,
      library,
      row,
    );
  describeGloo(report, row);
  return lines.join('\n');
}

type Row = (title: string, text: string) => void;

/**
 * Without a driver there is no GPU to use, and its libraries are of no interest, unless the user
 * has named one.
 */
const mayHaveGpu = ({ cuda, libraries }: DoctorReport): boolean =>
  optionalLibraries.some(({ variable }) => process.env[variable] !== undefined) ||
  cuda.driver !== null ||
  cuda.devices.length > 0 ||
  libraries.some(({ name, path }) => name === 'libcuda' && path !== null);

const DRIVER_ADVICE =
  'For an NVIDIA GPU, install driver 580 or newer. --json lists the libraries of GPUs.';

const describeGloo = ({ gloo }: DoctorReport, row: Row): void =>
  describeOptional('gloo', gloo.path, gloo, row);

function describeOptional(
  name: string,
  found: string | null,
  { without, tried }: Pick<LibraryReport, 'without' | 'tried'>,
  row: Row,
): void {
  row(name, found ?? `missing: ${without}`);
  if (found === null) for (const { path, reason } of tried) row('', `${path}: ${reason}`);
}

/** Text in lines of so many characters; longer words, such as paths, have lines of their own. */
function wrapped(text: string, width: number): string[] {
  const lines: string[] = [];
  for (const word of text.split(' ')) {
    const last = lines.at(-1);
    // Two less where a line is indented.
    const room = lines.length > 1 ? width - 2 : width;
    if (last !== undefined && last.length + 1 + word.length <= room)
      lines[lines.length - 1] = `${last} ${word}`;
    else lines.push(word);
  }
  return lines;
}

function describeFusion(generatesKernels: readonly boolean[]): string {
  if (generatesKernels.every(Boolean)) return 'compile() fuses kernels on CUDA';
  const without = generatesKernels.flatMap((does, i) => (does ? [] : [`cuda:${i}`]));
  return `compile() does not fuse kernels on ${without.join(', ')}: no NVRTC compiles for it`;
}

/** Later files override earlier ones. */
function describeTables(files: readonly TableFile[]): string[] {
  const lines = files.map((file) =>
    'ignored' in file
      ? `${file.path} is ignored: ${file.ignored}`
      : `${file.entries} matrix products, ${file.path}`,
  );
  return files.some((file) => 'entries' in file)
    ? lines
    : [...lines, 'no matrix products: a rule chooses their kernels; npx shardwise tune measures'];
}

function describeDevice(info: NativeDeviceInfo, cores: string): string {
  const memory = `${(info.totalBytes / 2 ** 30).toFixed(1)} GiB`;
  return [info.name, `${info.numCores} ${cores}`, memory, info.detail].filter(Boolean).join(', ');
}

function glibcVersion(): string | null {
  const header = (process.report.getReport() as { header?: { glibcVersionRuntime?: string } })
    .header;
  return header?.glibcVersionRuntime ?? null;
}

function driverVersion(): string | null {
  const file = '/proc/driver/nvidia/version';
  if (!existsSync(file)) return null;
  return /(\d+\.\d+(?:\.\d+)?)\s/.exec(readFileSync(file, 'utf8'))?.[1] ?? null;
}
