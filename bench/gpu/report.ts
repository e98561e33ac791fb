/**
 * Writes docs/performance.md from the newest figures in bench/results. With --check, fails if the
 * committed page differs.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { type CollectivesReport, printedCollectives } from '../gpus/collectives-table.js';
import { gapOf } from './known-gaps.js';
import type { Profiles, RowProfile } from './profile.js';
import type { Row } from './rows.js';
import { printed, type Report, shortRows } from './table.js';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..', '..');
const results = path.join(root, 'bench', 'results');
const page = path.join(root, 'docs', 'performance.md');

/** The newest result whose file name ends with `ending`. */
function newest<T>(ending: string): { file: string; report: T } | null {
  const file = readdirSync(results)
    .filter((name) => name.endsWith(ending))
    .sort()
    .at(-1);
  return file === undefined
    ? null
    : { file, report: JSON.parse(readFileSync(path.join(results, file), 'utf8')) as T };
}

function collectives(ranks: number): string {
  const found = newest<CollectivesReport>(`-${ranks}x-nvidia-h200-collectives.json`);
  if (found === null) return '';
  const { machine, date, commit, torch } = found.report;
  return `
### ${ranks} GPUs

${machine}, PyTorch ${torch}, ${date}, at ${commit} (bench/results/${found.file}).

${printedCollectives(found.report)}
`;
}

/** Summarises the profile of a row. */
function profileText(profile: RowProfile | undefined): string {
  const { commit, kernels } = profile ?? { commit: '', kernels: [] };
  const longest = kernels.toSorted((a, b) => b.us - a.us)[0];
  if (longest === undefined) return '';
  const { kernel, us, memory, compute, occupancy, stalls } = longest;
  const waits = Object.entries(stalls).map(
    ([name, share]) => `${name.replaceAll('_', ' ')} ${share} %`,
  );
  const others = kernels.length > 1 ? `, one of ${kernels.length} kernels` : '';
  return `\`${kernel.slice(0, 32)}\` ${us} us${others}: memory ${memory.toFixed(0)} %, compute ${compute.toFixed(0)} %, occupancy ${occupancy.toFixed(0)} %; ${waits.join(', ')} (${commit})`;
}

function shortRowsText(report: Report, profiles: Profiles | undefined): string {
  const lines = shortRows(report).map(
    (name) => `| ${name} | ${profileText(profiles?.rows[name])} | ${gapOf(name)} |`,
  );
  return ['| row | profile | why, and what was tried |', '| --- | --- | --- |', ...lines].join(
    '\n',
  );
}

/** Names of rows, with a complete group under its own name. */
function namesOf(some: readonly Row[], all: readonly Row[]): string {
  const ofGroup = (group: string, list: readonly Row[]): readonly Row[] =>
    list.filter((row) => row.group === group);
  const groups = [...new Set(some.map(({ group }) => group))];
  return groups
    .flatMap((group) =>
      ofGroup(group, some).length === ofGroup(group, all).length
        ? `all of ${group}`
        : ofGroup(group, some).map(({ name }) => name),
    )
    .join('; ');
}

/** The rows that were measured in a rerun, with their commits. */
function laterRuns({ rows }: Report): string {
  const commits = [...new Set(rows.flatMap((measured) => measured.commit ?? []))];
  const [all, of] = [
    rows.map(({ row }) => row),
    (commit: string): Row[] =>
      rows.filter((measured) => measured.commit === commit).map(({ row }) => row),
  ];
  const runs = commits.map(
    (commit) =>
      `Measured later, at ${commit}, in a separate run (the limit is from the main run): ${namesOf(of(commit), all)}.`,
  );
  return runs.length === 0 ? '' : `\n${runs.join('\n')}\n`;
}

function peerText(modes: readonly string[]): string {
  if (modes.includes('max-autotune'))
    return 'that of its fastest mode (eager, `torch.compile`, or `torch.compile` with `max-autotune-no-cudagraphs`)';
  return modes.includes('compile')
    ? 'that of its fastest mode (eager or `torch.compile`)'
    : 'that of its eager mode (this run left `torch.compile` out)';
}

/** Text for rows that PyTorch runs only eagerly, listed in `uncompiled` of peer_torch.py. */
const eagerText = (modes: readonly string[]): string =>
  modes.length > 1
    ? '\n  For AdamW, attention, the copy and the rows of the host it is that of eager mode, which compilation does not change.'
    : '';

function text(): string {
  const kernels = newest<Report>('-nvidia-h200-kernels.json');
  if (kernels === null)
    throw new Error(
      'bench/results has no figures of the kernels of an H200: run npm run bench:gpu -- --write on a machine with one',
    );
  const { file, report } = kernels;
  const profiles = newest<Profiles>('-nvidia-h200-profiles.json')?.report;
  return `<!-- Written by \`npm run bench:report\` from bench/results/${file}. Do not edit. -->

# Performance

## One GPU

Kernels beside PyTorch ${report.torch} on the same machine in the same run: ${report.gpu}, ${report.machine}, ${report.date}, at ${report.commit}${report.seconds === undefined ? '' : `, in ${report.seconds} s`}.
\`npm run bench:gpu\` makes such a table, whole or of some groups (\`npm run bench:gpu -- norms softmax --write\`), and needs a GPU and a Python with torch.

- Both sides run in turns, ${report.pairs} times each. A figure is the median; the ratio is the median over the pairs, with the smallest and the largest in brackets.
- PyTorch's figure is ${peerText(report.modes)}, with short kernels replayed from a CUDA graph. Ours are eager calls.${eagerText(report.modes)}
- Before anything is timed, a sample of our results is compared with float64, except for the copy, common ops, attention with dropout, and the rows of the host.
- The limit is what the machine reaches in the same run: the rate of a copy of 1 GiB for rows that move memory, the fastest matmul of either side for rows that multiply.
  ${report.rows.some(({ mhz }) => mhz !== undefined) ? 'Matmuls are limited by power, so the lowest clock and the highest power are beside them.' : 'Matmuls are limited by power; clock and power were not read in this run.'}
- Rows without a goal are common ops; PyTorch's figure for them is that of eager calls.
- PyTorch chooses its attention kernel itself; on this GPU it takes cuDNN's.
- Operands are random numbers. Small weights alternate, so that none is in the L2 cache.

${printed(report)}
${laterRuns(report)}
### Rows that stay short of their goal

Nsight Compute (\`npm run bench:profile\`) measured the longest kernel of each row alone, with cold caches: shares of what the hardware can do, what its warps wait for
most, and the commit. [bench/notes](../bench/notes/) has more.

${shortRowsText(report, profiles)}

## Several GPUs

Collectives, distributed tensors, and products beside collectives, with a GPU for each rank. \`npm run bench:collectives\` repeats it on a machine with several GPUs.

- The first columns are the time of a call in a long batch, whichever of host and device is slower. Then come the host's share and the device's alone (ours: calls queued
  behind large ones; PyTorch's: replays of a graph).
- Bus bandwidth is what crosses each link, as NCCL's tests count it. The limit is the 370 GB/s that NVLink reached.
- A product beside an all-gather is slower than PyTorch's, whose all-gather is slower: NCCL holds 64 multiprocessors for ours, about 24 for PyTorch's. A counter hands out
  the tiles, so none waits for those 64; with tiles assigned beforehand, the same product took 1,947 us.
- Gathered operands and scattered sums are not fused with their products.
${[2, 4, 8].map(collectives).join('')}`;
}

const COLUMNS = 120;

/** Breaks paragraphs and items at a width. Tables stay, and lines of an item are indented. */
function wrapped(markdown: string): string {
  const joined = markdown.replaceAll(/(?<=[^|\n-])\n {2}(?=\S)/g, ' ');
  return joined
    .split('\n')
    .map((line) => {
      if (/^[|<#]/.test(line)) return line;
      const indent = line.startsWith('- ') ? '  ' : '';
      const lines: string[] = [];
      for (const word of line.split(' ')) {
        const last = lines.at(-1);
        if (last !== undefined && last.length + 1 + word.length <= COLUMNS)
          lines[lines.length - 1] = `${last} ${word}`;
        else lines.push(last === undefined ? word : indent + word);
      }
      return lines.join('\n');
    })
    .join('\n');
}

const isCheck = process.argv.includes('--check');
const wanted = wrapped(text());
if (!isCheck) writeFileSync(page, wanted);
else if (readFileSync(page, 'utf8') !== wanted)
  throw new Error('docs/performance.md is not what bench/results says: run npm run bench:report');
