/**
 * Where the optional GPU libraries are looked for: an environment variable alone where it is set;
 * what the process has open or the system's loader finds; CUDA toolkits; Python wheels. The native
 * side is handed the candidates and opens one when it is needed.
 */
import { existsSync, readdirSync, statSync } from 'node:fs';
import { homedir } from 'node:os';
import path from 'node:path';
import type { Addon } from './addon.js';

/** A library that Shardwise can use but does not need. */
export interface OptionalLibrary {
  name: string;
  /** Newest major first. */
  sonames: readonly string[];
  /** A file or folder that is then the only candidate, or `off`. */
  variable: string;
  versionSymbol: string;
  /** Folders below `nvidia/` in Python's site-packages. */
  wheels: readonly string[];
  /** In the form of `formatVersion`'s input. */
  minimumVersion: number;
  /** What its absence turns off. */
  without: string;
  /**
   * What comes of it where the variable names one that cannot be used; where that is left out, as
   * without any.
   */
  misnamed?: string;
}

export const optionalLibraries: readonly OptionalLibrary[] = [
  {
    name: 'libcuda',
    sonames: ['libcuda.so.1'],
    variable: 'SHARDWISE_LIBCUDA_PATH',
    versionSymbol: 'cuDriverGetVersion',
    wheels: [],
    minimumVersion: 13000,
    without: 'no CUDA device can be used: install the NVIDIA driver, 580 or newer',
  },
  {
    name: 'cuBLASLt',
    sonames: ['libcublasLt.so.13', 'libcublasLt.so.12'],
    variable: 'SHARDWISE_CUBLASLT_PATH',
    versionSymbol: 'cublasLtGetVersion',
    wheels: ['cu13/lib', 'cublas/lib'],
    minimumVersion: 120000,
    without:
      "matrix products on CUDA run on Shardwise's own kernels, slower at some sizes; float32 " +
      'is not multiplied in TF32',
    misnamed:
      'matrix products of floats on CUDA fail, but for small ones: set SHARDWISE_CUBLASLT_PATH ' +
      "to a libcublasLt.so.13 or .12 or to its folder, or to off for Shardwise's own " +
      'kernels, or unset it',
  },
  {
    name: 'NCCL',
    sonames: ['libnccl.so.2'],
    variable: 'SHARDWISE_NCCL_PATH',
    versionSymbol: 'ncclGetVersion',
    wheels: ['nccl/lib', 'cu13/lib'],
    minimumVersion: 21800,
    without: 'no collectives between GPUs',
  },
  {
    name: 'NVRTC',
    sonames: ['libnvrtc.so.13', 'libnvrtc.so.12'],
    variable: 'SHARDWISE_NVRTC_PATH',
    versionSymbol: 'nvrtcVersion',
    wheels: ['cu13/lib', 'cuda_nvrtc/lib'],
    minimumVersion: 12000,
    without: 'compile() does not fuse kernels on CUDA',
  },
  {
    name: 'CUPTI',
    sonames: ['libcupti.so.13', 'libcupti.so.12'],
    variable: 'SHARDWISE_CUPTI_PATH',
    versionSymbol: 'cuptiGetVersion',
    wheels: ['cu13/lib', 'cuda_cupti/lib'],
    minimumVersion: 19,
    without:
      'profiles time kernels on CUDA by events around them, which shows each command as one kernel',
  },
];

/** The entry of {@link optionalLibraries} of that name. */
export function libraryNamed(
  name: 'libcuda' | 'cuBLASLt' | 'NCCL' | 'NVRTC' | 'CUPTI',
): OptionalLibrary {
  return optionalLibraries.find((library) => library.name === name) as OptionalLibrary;
}

/** What the absence of a library means here. */
export function whatIsMissing(
  { variable, without, misnamed }: OptionalLibrary,
  environment: Environment = process.env,
): string {
  const named = environment[variable];
  return named && named !== 'off' ? (misnamed ?? without) : without;
}

/** The loader's own reasons begin with the path, which stands beside them anyway. */
export function reasonAlone(path: string, reason: string): string {
  return reason.startsWith(`${path}: `) ? reason.slice(path.length + 2) : reason;
}

export interface LibrarySearch {
  found?: { path: string; version: number };
  tried: { path: string; reason: string }[];
}

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Paths and sonames to try, in order. Only what exists, apart from sonames and what the user named.
 */
export function libraryCandidates(
  library: OptionalLibrary,
  environment: Environment = process.env,
): string[] {
  const named = environment[library.variable];
  if (named === 'off') return [];
  if (named) return isFolder(named) ? filesIn(named, library) : [named];
  const folders = [...toolkitFolders(environment), ...wheelFolders(library, environment)];
  return [...library.sonames, ...folders.flatMap((folder) => filesIn(folder, library))];
}

/** Opens the candidates in order until one loads and is new enough; keeps every reason. */
export function findLibrary(
  addon: Addon,
  library: OptionalLibrary,
  environment: Environment = process.env,
): LibrarySearch {
  const tried: LibrarySearch['tried'] = [];
  const candidates = libraryCandidates(library, environment);
  if (candidates.length === 0) {
    tried.push({
      path: `${library.variable}=${environment[library.variable]}`,
      reason: 'no such library there, or switched off',
    });
  }
  for (const candidate of candidates) {
    const probed = addon.probeLibrary(candidate, library.versionSymbol);
    if ('reason' in probed)
      tried.push({ path: candidate, reason: reasonAlone(candidate, probed.reason) });
    else if (probed.version >= library.minimumVersion) return { found: probed, tried };
    else {
      const versions =
        `${formatVersion(library, probed.version)}, but ` +
        `${formatVersion(library, library.minimumVersion)} or newer is needed`;
      tried.push({ path: probed.path, reason: `version ${versions}` });
    }
  }
  return { tried };
}

/**
 * The library's own number as people write it: 13000 is 13.0 for the driver and NVRTC, 22803 is
 * 2.28.3 for the others.
 */
export function formatVersion(library: OptionalLibrary, version: number): string {
  if (version <= 0) return 'unknown';
  if (library.name === 'libcuda' || library.name === 'NVRTC')
    return `${Math.floor(version / 1000)}.${Math.floor((version % 1000) / 10)}`;
  return `${Math.floor(version / 10000)}.${Math.floor((version % 10000) / 100)}.${version % 100}`;
}

function toolkitFolders(environment: Environment): string[] {
  const homes = [environment['CUDA_HOME'], environment['CUDA_PATH'], '/usr/local/cuda'];
  const toolkits = homes.flatMap((folder) =>
    folder
      ? ['lib64', 'lib', 'targets/x86_64-linux/lib', 'extras/CUPTI/lib64'].map((part) =>
          path.join(folder, part),
        )
      : [],
  );
  const conda = environment['CONDA_PREFIX'];
  return conda ? [...toolkits, path.join(conda, 'lib')] : toolkits;
}

function wheelFolders(library: OptionalLibrary, environment: Environment): string[] {
  const folder = environment['HOME'] ?? homedir();
  const roots = [
    environment['VIRTUAL_ENV'],
    environment['CONDA_PREFIX'],
    path.join(folder, '.local'),
  ];
  // Where `python3` is found is where people have installed the wheels that they use.
  const pythons = (environment['PATH'] ?? '')
    .split(path.delimiter)
    .filter((folder) => folder !== '' && existsSync(path.join(folder, 'python3')));
  return [
    ...new Set([...roots, ...pythons.map((folder) => path.dirname(folder)), '/usr/local', '/usr']),
  ].flatMap((root) => {
    if (!root) return [];
    const versions = entries(path.join(root, 'lib')).filter((name) => name.startsWith('python3'));
    const sites = versions.flatMap((python) =>
      ['site-packages', 'dist-packages'].map((site) => path.join(root, 'lib', python, site)),
    );
    return sites.flatMap((site) => library.wheels.map((wheel) => path.join(site, 'nvidia', wheel)));
  });
}

function filesIn(folder: string, library: OptionalLibrary): string[] {
  return library.sonames
    .map((soname) => path.join(folder, soname))
    .filter((file) => existsSync(file));
}

function entries(folder: string): string[] {
  try {
    return readdirSync(folder).sort();
  } catch {
    return [];
  }
}

function isFolder(file: string): boolean {
  return statSync(file, { throwIfNoEntry: false })?.isDirectory() ?? false;
}

/** What a CUDA backend is opened with: where its libraries may lie, one candidate a line. */
export function backendLibraries(): [cublaslt: string, nccl: string, nvrtc: string] {
  const candidates = (name: 'cuBLASLt' | 'NCCL' | 'NVRTC') =>
    libraryCandidates(libraryNamed(name)).join('\n');
  return [candidates('cuBLASLt'), candidates('NCCL'), candidates('NVRTC')];
}
