/** Times every configuration of a product on the GPU. */
import { nativeTable, type Product, productText, type TableEntry } from '../cuda/matmul-table.js';
import { bfloat16, cuda, float32, noGrad, randn, scope, type Tensor } from '../index.js';
import type { Addon } from '../native/addon.js';

/**
 * Bytes of the operand sets that calls alternate between: several times the L2 cache of any GPU, so
 * that no operand is cached.
 */
const BEYOND_CACHE = 2 ** 28;
const MOST_SETS = 24;
/**
 * Length of a sample: long enough for the resolution of events, short enough that neighbouring
 * samples run at the same clock.
 */
const SAMPLE_US = 400;
const ROUNDS = 5;
/** Configurations slower than the fastest by this factor in the first round are not timed again. */
const HOPELESS = 1.15;
/** Repeated measurements differ by up to this factor. */
const NOISE = 1.01;

export interface Timed {
  readonly name: string;
  readonly us: number;
}

export interface Measured {
  readonly product: Product;
  /** The fastest first; hopeless ones with their first time. */
  readonly timed: readonly Timed[];
  /** The configuration without a table. */
  readonly rule: string;
  readonly entry: TableEntry;
}

const dtypes = { bfloat16, float32 };

interface Work {
  /** Microseconds per call. */
  sample(calls: number): number;
  free(): void;
}

function prepare({ layout, dtype, batch, m, n, k }: Product): Work {
  const bytes = batch * (m * k + k * n) * (dtype === 'float32' ? 4 : 2);
  const operand = (rows: number, columns: number): Tensor =>
    randn(batch === 1 ? [rows, columns] : [batch, rows, columns], {
      device: 'cuda',
      dtype: dtypes[dtype],
    });
  const operands = Array.from(
    { length: Math.min(MOST_SETS, Math.max(2, Math.ceil(BEYOND_CACHE / bytes))) },
    () =>
      noGrad(
        () =>
          [
            layout[0] === 't' ? operand(k, m) : operand(m, k),
            layout[1] === 't' ? operand(n, k) : operand(k, n),
          ] as const,
      ),
  );
  const sets = operands.map(
    ([x, w]) =>
      [
        layout[0] === 't' ? x.transpose(-1, -2) : x,
        layout[1] === 't' ? w.transpose(-1, -2) : w,
      ] as const,
  );
  const [begin, end] = [
    new cuda.Event({ enableTiming: true }),
    new cuda.Event({ enableTiming: true }),
  ];
  let turn = 0;
  const run = (calls: number): void => {
    for (let i = 0; i < calls; i++) {
      const [x, w] = sets[turn++ % sets.length] as (typeof sets)[0];
      scope(() => void noGrad(() => x.matmul(w)));
    }
  };
  return {
    sample(calls) {
      run(Math.max(2, calls >> 2)); // warm up, so that launches are ahead of the GPU
      begin.record();
      run(calls);
      end.record();
      end.synchronize();
      return (begin.elapsedTime(end) * 1e3) / calls;
    },
    free() {
      for (const [x, w] of operands) {
        x.dispose();
        w.dispose();
      }
      begin[Symbol.dispose]();
      end[Symbol.dispose]();
    },
  };
}

/** Selects configurations of one product, by loading a table with one entry. */
class Trial {
  private readonly addon: Addon;
  private readonly device: number;
  private readonly product: Product;
  private readonly library: number;

  constructor(addon: Addon, device: number, product: Product, library: number) {
    this.addon = addon;
    this.device = device;
    this.product = product;
    this.library = library;
  }

  get names(): string[] {
    return this.addon
      .tuningConfigurations(this.device, productText(this.product))
      .split('\n')
      .filter(Boolean);
  }

  /** Selects the configuration of the product from now on; null: by the rule. */
  take(name: string | null): void {
    cuda.synchronize();
    const entry = {
      ...this.product,
      best: name ?? '',
      own: name ?? '',
      us: 0,
      ownUs: 0,
      libraryUs: null,
    };
    this.addon.loadTuning(
      this.device,
      name === null ? '' : nativeTable({ library: this.library, entries: [entry] }),
    );
  }

  /** The configuration of the last call. */
  get last(): string {
    cuda.synchronize();
    return this.addon.lastTuned(this.device);
  }
}

/**
 * Measures a product. Null if it uses no table, because it is small or the rows of its operands are
 * not aligned to 16 bytes.
 */
export function measure(
  addon: Addon,
  device: number,
  product: Product,
  library: number,
): Measured | null {
  const trial = new Trial(addon, device, product, library);
  const work = prepare(product);
  try {
    trial.take(null);
    work.sample(2);
    const rule = trial.last.split(' ')[0] as string;
    const able = trial.names.filter((name) => {
      trial.take(name);
      work.sample(1);
      return trial.last === `${name} table`;
    });
    if (able.length === 0) return null;
    const timed = timeAll(able, trial, work);
    return { product, timed, rule, entry: entryOf(product, timed) };
  } finally {
    trial.take(null);
    work.free();
  }
}

function timeAll(names: readonly string[], trial: Trial, work: Work): Timed[] {
  const sample = (name: string, calls: number): number => {
    trial.take(name);
    return work.sample(calls);
  };
  const first = names.map((name) => ({ name, us: Math.min(sample(name, 2), sample(name, 4)) }));
  const fastest = Math.min(...first.map(({ us }) => us));
  const calls = Math.min(100, Math.max(2, Math.round(SAMPLE_US / fastest)));
  const promising = first.filter(({ us }) => us <= fastest * HOPELESS + 2);
  const samples = new Map(promising.map(({ name }) => [name, [] as number[]]));
  // Interleaved, so that changes of the clock affect all configurations.
  for (let round = 0; round < ROUNDS; round++)
    for (const [name, list] of samples) list.push(sample(name, calls));
  return first
    .map(({ name, us }) => ({ name, us: median(samples.get(name)) ?? us }))
    .sort((a, b) => a.us - b.us);
}

function median(list: readonly number[] | undefined): number | undefined {
  return list?.toSorted((a, b) => a - b)[list.length >> 1];
}

const isLibrary = ({ name }: Timed): boolean => name.startsWith('library');
/** The preference among equally fast ones: own kernels first, then the library's default. */
const preference = ({ name }: Timed): number =>
  isLibrary({ name, us: 0 }) ? (name === 'library' ? 1 : 2) : 0;

export function entryOf(product: Product, timed: readonly Timed[]): TableEntry {
  const simplest = (list: readonly Timed[]): Timed | undefined => {
    const bound = Math.min(...list.map(({ us }) => us)) * NOISE;
    return list
      .filter(({ us }) => us <= bound)
      .sort((a, b) => preference(a) - preference(b) || a.us - b.us)[0];
  };
  const best = simplest(timed) as Timed;
  const own = simplest(timed.filter((each) => !isLibrary(each))) ?? best;
  const library = timed.find(({ name }) => name === 'library');
  const rounded = (us: number): number => Math.round(us * 100) / 100;
  return {
    ...product,
    best: best.name,
    own: own.name,
    us: rounded(best.us),
    ownUs: rounded(own.us),
    libraryUs: library === undefined ? null : rounded(library.us),
  };
}
