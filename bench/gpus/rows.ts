/** The rows of bench:gpus: what trains, how it is sharded, and in which modes of each side. */
import { SIZES, type Size } from '../gpt.js';
import type { Job, Mode, ModelSize } from './job.js';

/** One job on both sides, and its modes of each. */
export interface Compared {
  readonly job: Omit<Job, 'modes' | 'trace'>;
  readonly ours: readonly Mode[];
  readonly torch: readonly Mode[];
}

/** A row is some jobs, or `product`: the products of overlap.ts and peer_overlap.py. */
export type Row = (gpus: number) => readonly Compared[] | 'product';

/** As a program writes it without thinking of settings. */
export const plain: Mode = {
  name: 'default',
  reshard: true,
  prefetch: 0,
  compile: false,
  scopes: true,
  attention: 'default',
};
/** PyTorch's kindest settings without a compiler. */
const kind: Mode = { ...plain, name: 'kind', prefetch: 2, attention: 'cudnn' };
const compiled: Mode = { ...kind, name: 'compile', compile: true };
/** Ours, compiled as a whole and layer by layer. */
const whole: Mode = { ...plain, name: 'compile', compile: true };
const layered: Mode = { ...plain, name: 'layers', compile: 'layers' };
const kept = (mode: Mode): Mode => ({ ...mode, reshard: false });

/** Modes where memory allows whole parameters to stay between forward and backward. */
const roomy = {
  ours: [plain, kept({ ...plain, name: 'kept' }), kept(whole), kept(layered)],
  torch: [plain, kept(kind), kept(compiled)],
};
const tight = {
  ours: [plain, whole, layered],
  torch: [plain, kind, compiled],
};

const gptOf = (size: Size): ModelSize => ({ kind: 'gpt', kvHeads: size.heads, ...size });

/** Llama 3.1 8B. */
const LLAMA_8B: ModelSize = {
  kind: 'llama',
  vocabulary: 128256,
  width: 4096,
  heads: 32,
  kvHeads: 8,
  hidden: 14336,
  layers: 32,
  context: 8192,
};

const common = {
  tensorRanks: 1,
  parallel: 'fsdp',
  checkpoint: false,
  lr: 1e-4,
  warm: 4,
  steps: 10,
  device: 'cuda',
  dtype: 'bfloat16',
} as const;

const gpt =
  (name: keyof typeof SIZES, batch: number, modes: Omit<Compared, 'job'>): Row =>
  (gpus) => [
    { job: { ...common, name, model: gptOf(SIZES[name]), dataRanks: gpus, batch }, ...modes },
  ];

const llama = (name: string, dataRanks: number, tensorRanks: number): Compared => ({
  job: {
    ...common,
    name,
    model: LLAMA_8B,
    dataRanks,
    tensorRanks,
    batch: 2,
    checkpoint: true,
    warm: 3,
    steps: 6,
  },
  ...roomy,
});

/** A Llama of one billion parameters. */
export const LLAMA_1B: ModelSize = {
  kind: 'llama',
  vocabulary: 128256,
  width: 2048,
  heads: 32,
  kvHeads: 8,
  hidden: 8192,
  layers: 16,
  context: 2048,
  tied: true,
};

/** The plain model on one GPU, in mixed precision. */
const single =
  (name: string, model: ModelSize, batch: number): Row =>
  () => [
    {
      job: { ...common, name, model, batch, dataRanks: 1, parallel: 'ddp', steps: 20 },
      ours: [plain, { ...plain, name: 'no scopes', scopes: false }, whole],
      torch: [plain, kind, compiled],
    },
  ];

/** DDP on 1, 2 and more ranks, as far as there are GPUs. */
const scaling: Row = (gpus) =>
  [1, 2, 4, 8]
    .filter((ranks) => ranks <= gpus)
    .map((ranks) => ({
      job: {
        ...common,
        parallel: 'ddp' as const,
        name: `ddp124m, ${ranks} GPUs`,
        model: gptOf(SIZES['124m']),
        dataRanks: ranks,
        batch: 16,
        steps: 20,
      },
      ours: [plain],
      torch: [plain, { ...compiled }],
    }));

export const ROWS: Readonly<Record<string, Row>> = {
  '124m': gpt('124m', 16, roomy),
  '1.5b': gpt('1.5b', 8, roomy),
  '8b': gpt('8b', 2, tight),
  llama8b: (gpus) => [llama('llama8b', gpus, 1)],
  'llama8b-tp': (gpus) => [llama('llama8b-tp', 1, gpus)],
  'llama8b-2d': (gpus) => [llama('llama8b-2d', gpus / 2, 2)],
  ddp124m: scaling,
  'one-124m': single('one-124m', gptOf(SIZES['124m']), 16),
  'one-1.5b': single('one-1.5b', gptOf(SIZES['1.5b']), 8),
  'one-llama1b': single('one-llama1b', LLAMA_1B, 4),
  'product-beside-gather': () => 'product',
};

/** @throws Error that lists the rows, for a name that is none */
export function rowsOf(names: readonly string[]): [string, Row][] {
  return names.map((name) => {
    const row = ROWS[name];
    if (row === undefined)
      throw new Error(`no row is called "${name}": there are ${Object.keys(ROWS).join(', ')}`);
    return [name, row];
  });
}
