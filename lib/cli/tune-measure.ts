/** Times every configuration of a product on the GPU. */
import { nativeTable, type Product, productText, type TableEntry } from '../cuda/matmul-table.js';
import { bfloat16, cuda, float32, noGrad, randn, scope, type Tensor } from '../index.js';
import type { Addon } from '../native/addon.js';

/**
 * Operands that take turns are together several times as large as the L2 cache of any GPU, so none
 * is found there.
 */
const BEYOND_CACHE = 2 ** 28;
const MOST_SETS = 24;
/**
 * Of a sample; long enough for the clock of events, short enough for the boost of the processor to
 * be that of its neighbours.
 */
const SAMPLE_US = 400;
const ROUNDS = 5;
/**
 * Times a configuration that is this much slower than the fastest in the first look is not looked
 * at again.
 */
const HOPELESS = 1.15;
/** What is measured twice differs by as much. */
const NOISE = 1.01;

export interface Timed {
  readonly name: string;
  readonly us: number;
}

export interface Measured {
  readonly product: Product;
  /** The fastest first; those that were hopeless from their first time. */
  readonly timed: readonly Timed[];
  /** What is taken without a table. */
  readonly rule: string;
  readonly entry: TableEntry;
}

const dtypes = { bfloat16, float32 };

interface Work {
  /** Microseconds a call. */
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
  const made = Array.from(
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
  const sets = made.map(
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
      run(Math.max(2, calls >> 2)); // so that the launches are ahead of the GPU
      begin.record();
      run(calls);
      end.record();
      end.synchronize();
      return (begin.elapsedTime(end) * 1e3) / calls;
    },
    free() {
      for (const [x, w] of made) {
        x.dispose();
        w.dispose();
      }
      begin[Symbol.dispose]();
      end[Symbol.dispose]();
    },
  };
}

/** The configurations of one product, each loaded as a table of its own. */
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

  /** What computes the product from now on; null: the rule. */
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

  /** What computed the last one. */
  get last(): string {
    cuda.synchronize();
    return this.addon.lastTuned(this.device);
  }
}

/**
 * Null for a product that no table speaks of: it is small, or rows of its operands do not begin at
 * multiples of 16 bytes.
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
  // In turns, so that what the clock does in the meantime falls on all.
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
/** Of what is as fast as the fastest: our own first, then what the library would take by itself. */
const plainness = ({ name }: Timed): number =>
  isLibrary({ name, us: 0 }) ? (name === 'library' ? 1 : 2) : 0;

export function entryOf(product: Product, timed: readonly Timed[]): TableEntry {
  const plainest = (list: readonly Timed[]): Timed | undefined => {
    const bound = Math.min(...list.map(({ us }) => us)) * NOISE;
    return list
      .filter(({ us }) => us <= bound)
      .sort((a, b) => plainness(a) - plainness(b) || a.us - b.us)[0];
  };
  const best = plainest(timed) as Timed;
  const own = plainest(timed.filter((each) => !isLibrary(each))) ?? best;
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
