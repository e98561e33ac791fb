/** Loads the samples of steps on this thread, or in worker threads. */
import { DataError } from '../core/errors.js';
import type { HostBatch } from './collate.js';
import type { Source, Unit } from './dataset.js';
import type { Place, Step } from './order.js';

/** The samples of a step, or what a worker made of them. */
export type Fetched<Sample> = { readonly samples: Sample[] } | { readonly batch: HostBatch };

/** Loads the samples of a step. */
export interface Fetcher<Sample> {
  fetch(step: Step): Promise<Fetched<Sample>>;
  /** Ends worker threads. */
  close(): Promise<void>;
}

/** Loads on this thread. */
export function fetcherOfThread<Sample>({ get }: Source<Sample>): Fetcher<Sample> {
  const sampleOf = async (step: Step, i: number): Promise<Sample> => {
    if (get === null) return step.units[i] as Sample;
    try {
      return await get(step.units[i]);
    } catch (error) {
      throw sampleError(step, i, error);
    }
  };
  return {
    fetch: async (step) => ({
      samples: await Promise.all(step.units.map((_, i) => sampleOf(step, i))),
    }),
    close: async () => {},
  };
}

/** What was loaded for a step, and where the next step begins. */
export interface FetchedStep<Sample> {
  readonly fetched: Fetched<Sample>;
  readonly after: Place;
}

/** Loads steps, `ahead` of them before they are needed; ends the workers at the end. */
export async function* fetchedAhead<Sample>(
  steps: AsyncIterable<Step>,
  makeFetcher: () => Fetcher<Sample>,
  ahead: number,
): AsyncGenerator<FetchedStep<Sample>, void> {
  const fetcher = makeFetcher();
  const loading: { fetched: Promise<Fetched<Sample>>; after: Place }[] = [];
  const first = async (): Promise<FetchedStep<Sample>> => {
    const { fetched, after } = loading.shift() as (typeof loading)[number];
    return { fetched: await fetched, after };
  };
  try {
    for await (const step of steps) {
      const fetched = fetcher.fetch(step);
      fetched.catch(() => {}); // thrown when its turn comes
      loading.push({ fetched, after: step.after });
      if (loading.length > ahead) yield await first();
    }
    while (loading.length > 0) yield await first();
  } finally {
    await fetcher.close();
  }
}

/** The error of a sample that cannot be loaded. */
export function sampleError(step: Step, i: number, cause: unknown, worker?: number): DataError {
  const unit = step.units[i] as Unit;
  const { epoch, position } = step.places[i] as Place;
  const name = typeof unit === 'number' ? `sample ${unit}` : 'the sample';
  const where = worker === undefined ? '' : ` in worker ${worker}`;
  const { message = String(cause) } = (cause ?? {}) as Partial<Error>;
  return new DataError(
    `DataLoader: ${name} at position ${position} of epoch ${epoch} cannot be loaded${where}: ` +
      message,
    { sample: unit, epoch, position, ...(worker === undefined ? {} : { worker }) },
    { cause },
  );
}
