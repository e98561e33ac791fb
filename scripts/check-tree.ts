/**
 * Checks rules about files that no compiler enforces: sizes, width of Markdown, includes of native
 * folders, no exceptions in native code, and equal kernel files for CPU and CUDA. `npm run
 * check:tree` prints violations; test/architecture uses the same functions.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { reportFindings } from './report-findings.js';

export const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..');

/** Most lines of a file, by folder and ending. Generated files are exempt. */
const generated = ['native/generated/', 'lib/core/absent-names/'];
const sizeLimits = [
  {
    folders: ['lib', 'test', 'examples', 'bench', 'scripts'],
    ending: /\.(ts|cjs|mjs)$/,
    limit: 400,
  },
  { folders: ['native', 'bench'], ending: /\.(cc|h|inc|cu|cuh)$/, limit: 500 },
];

export function sizeFindings(): string[] {
  return sizeLimits.flatMap(({ folders, ending, limit }) =>
    folders.flatMap(filesBelow).flatMap((file) => {
      if (!ending.test(file) || generated.some((folder) => file.startsWith(folder))) return [];
      const lines = read(file).trimEnd().split('\n').length;
      return lines > limit
        ? [`${file}: ${lines} lines, at most ${limit}. It holds two subjects: split it.`]
        : [];
    }),
  );
}

const MOST_COLUMNS = 120;

/** Lines of Markdown that are too wide to read: not tables, pictures, code and targets of links. */
export function markdownFindings(): string[] {
  const pages = ['.', 'bench', 'docs', 'native', 'prebuilds', 'test'].flatMap((folder) =>
    folder === '.' ? readdirSync(root) : filesBelow(folder),
  );
  return pages
    .filter((file) => file.endsWith('.md'))
    .flatMap((file) => {
      const lines = read(file)
        .replaceAll(/^( *)```[\s\S]*?^\1```/gm, (code) => code.replaceAll(/.+/g, ''))
        .replaceAll(/\]\([^)]*\)/g, ']')
        .split('\n');
      return lines.flatMap((line, i) =>
        line.length > MOST_COLUMNS && !/^(?:\||!\[|<!--)/.test(line)
          ? [`${file}:${i + 1}: ${line.length} columns, at most ${MOST_COLUMNS}: break the line`]
          : [],
      );
    });
}

/** What the sources of a native folder may include in quotes, as paths from native/. */
const includeRules = [
  { folder: 'native/include/', may: ['include/', 'generated/'] },
  { folder: 'native/platform/', may: ['platform/'] },
  { folder: 'native/runtime/', may: ['include/', 'platform/', 'runtime/'] },
  {
    folder: 'native/addon/',
    may: ['include/', 'platform/', 'runtime/', 'comm/', 'addon/', 'generated/'],
  },
  { folder: 'native/comm/', may: ['include/', 'platform/', 'comm/', 'cpu/convert.h'] },
  { folder: 'native/gloo/', may: ['include/', 'gloo/', 'comm/'] },
  { folder: 'native/cpu/', may: ['include/', 'platform/', 'generated/', 'cpu/'] },
  {
    folder: 'native/cuda/primitives/',
    may: ['include/', 'cuda/primitives/', 'cuda/math.cuh', 'cuda/stream.h'],
  },
  { folder: 'native/cuda/', may: ['include/', 'generated/', 'cuda/'] },
];
const cudaWord =
  /#\s*include\s*[<"](cuda|cublas|nccl|nvrtc)|\b(cuda|cublas|nccl|nvrtc)[A-Z]\w*|\bCU(device|stream|context)\b|__global__/;

/** The parts that every system builds. */
const portable = /^native\/(addon|comm|cpu|include|runtime)\//;
const systemHeader =
  /#\s*include\s*<(sys\/[^>]+|linux\/[^>]+|(windows|pthread|sched|dlfcn|link|signal|fcntl|poll|time)\.h|csignal)>/;

const rawThrows =
  /\bnapi_throw\w*|\bnode_api_throw\w*|\bnapi_reject_deferred|\bnapi_get_named_property\b|\bnapi_set_named_property\b/;
/** Also what throws in node-addon-api. */
const throws = new RegExp(
  `${rawThrows.source}|\\bNapi::\\w*Error\\b|\\bThrowAsJavaScriptException\\b|(?:\\.|->)(?:Get|Set|Has|Delete|Call|MakeCallback)\\(`,
);

export function nativeFindings(): string[] {
  const findings: string[] = [];
  for (const file of filesBelow('native')) {
    if (!/\.(cc|h|inc|cu|cuh)$/.test(file) || file.includes('/selftest/')) continue;
    const text = read(file);
    const rule = includeRules.find(({ folder }) => file.startsWith(folder));
    for (const [, included] of text.matchAll(/^\s*#\s*include\s*"([^"]+)"/gm)) {
      const target = resolveInclude(file, included as string);
      if (
        rule !== undefined &&
        target !== null &&
        !rule.may.some((allowed) => target.startsWith(allowed))
      ) {
        findings.push(
          `${file} includes ${target}; ${rule.folder} may include ${rule.may.join(', ')}.`,
        );
      }
    }
    const thrown = (file === 'native/addon/values.h' ? rawThrows : throws).exec(
      withoutStrings(text),
    );
    if (thrown)
      findings.push(
        `${file} calls ${thrown[0]}; native code neither throws nor runs JavaScript that may (native/addon/failure.h, values.h): return a failed Status, which guard.ts throws.`,
      );
    const system = systemHeader.exec(text);
    if (portable.test(file) && system)
      findings.push(
        `${file} includes <${system[1]}>; only native/platform knows the system: add a function there.`,
      );
    const mention = cudaWord.exec(withoutStrings(text));
    if (!file.startsWith('native/cuda/') && mention)
      findings.push(`${file} mentions ${mention[0]}; only native/cuda knows CUDA.`);
  }
  return findings;
}

/** CPU files that hold several small kernels, each of which has its own file on CUDA. */
const groups: Readonly<Record<string, readonly string[]>> = {
  indexing: ['gather', 'index_add', 'scatter', 'take'],
  index_tensors: ['index_put', 'nonzero'],
};

/**
 * A CPU kernel file has a CUDA file of the same name, in whichever folder of native/cuda/kernels,
 * or in native/cuda/fused. A file with a suffix, such as pointwise_dispatch.cc beside pointwise.cc, needs no twin.
 */
export function mirrorFindings(): string[] {
  const stems = (folder: string, ending: string) =>
    filesBelow(folder).flatMap((file) =>
      file.endsWith(ending) ? [path.basename(file, ending)] : [],
    );
  const cpu = stems('native/cpu/kernels', '.cc');
  const cuda = new Set([
    ...stems('native/cuda/kernels', '.cu'),
    ...stems('native/cuda/fused', '.cu'),
  ]);
  return cpu.flatMap((stem) => {
    if (cpu.some((other) => stem.startsWith(`${other}_`))) return [];
    const missing = (groups[stem] ?? [stem]).filter((twin) => !cuda.has(twin));
    return missing.map(
      (twin) => `native/cpu/kernels/${stem}.cc has no twin native/cuda/kernels/${twin}.cu.`,
    );
  });
}

function resolveInclude(from: string, included: string): string | null {
  const folders = [path.dirname(from), 'native', 'native/include', 'native/cpu'];
  const found = folders
    .map((folder) => path.posix.normalize(`${folder}/${included}`))
    .find((file) => existsSync(path.join(root, file)));
  return found?.startsWith('native/') ? found.slice('native/'.length) : null;
}

function withoutStrings(text: string): string {
  return text.replace(/\/\/.*$/gm, '').replace(/"(\\.|[^"\\\n])*"/g, '""');
}

function read(file: string): string {
  return readFileSync(path.join(root, file), 'utf8');
}

function filesBelow(folder: string): string[] {
  if (!existsSync(path.join(root, folder))) return [];
  return readdirSync(path.join(root, folder), { withFileTypes: true }).flatMap((entry) => {
    const file = `${folder}/${entry.name}`;
    if (entry.isDirectory()) return entry.name === 'node_modules' ? [] : filesBelow(file);
    return [file];
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const findings = [
    ...sizeFindings(),
    ...markdownFindings(),
    ...nativeFindings(),
    ...mirrorFindings(),
  ];
  reportFindings(findings, 'sizes, Markdown, native includes and kernel files are in order');
}
