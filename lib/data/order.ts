/**
 * The steps of a loader: which units of the order that all ranks share belong to a step, and which
 * of them to this rank. The order does not depend on the number of ranks, so that the place in it
 * is all that a resumed run needs.
 */
import { DataError } from '../core/errors.js';
import type { Unit } from './dataset.js';
import { uniforms } from './permutation.js';

/** A place in the order: units of the epoch that all ranks together have got. */
export interface Place {
  readonly epoch: number;
  readonly position: number;
}

/** What a rank gets in a step. */
export interface Step {
  readonly units: readonly Unit[];
  /** The places of the units. */
  readonly places: readonly Place[];
  /** Where the next step begins. */
  readonly after: Place;
}

/** How an order becomes steps. */
export interface StepPlan {
  /** The units of an epoch from a position on. */
  open(place: Place): Iterable<Unit> | AsyncIterable<Unit>;
  /** Units of a step, of all ranks. */
  readonly size: number;
  readonly numReplicas: number;
  readonly rank: number;
  /** Whether the end of an epoch that fills no step is left out. */
  readonly dropLast: boolean;
}

/**
 * The steps from a place to the end of its epoch; of the next epoch, if this one has no step left.
 *
 * The last step has what is left. Where that is less than a unit for each rank, the next epoch
 * gives the missing ones and later begins behind them: so all ranks make equally many steps, and
 * each unit comes once.
 *
 * @throws DataError if an epoch has fewer units than ranks are missing one
 */
export async function* stepsFrom(plan: StepPlan, start: Place): AsyncGenerator<Step, void> {
  const { size, numReplicas, dropLast } = plan;
  const isStep = (units: readonly Unit[]): boolean =>
    units.length === size || (units.length > 0 && !dropLast);
  let at = start;
  let reader = new Reader(plan.open(at));
  try {
    let units = await reader.take(size);
    if (!isStep(units) && at.position > 0) {
      await reader.end();
      at = { epoch: at.epoch + 1, position: 0 };
      reader = new Reader(plan.open(at));
      units = await reader.take(size);
    }
    while (isStep(units)) {
      const { next, failure } = units.length < size ? END : await nextOf(reader, size);
      const following =
        isStep(next) || failure !== null
          ? { epoch: at.epoch, position: at.position + units.length }
          : { epoch: at.epoch + 1, position: 0 };
      const filling = await firstOf(plan, at.epoch + 1, numReplicas - units.length);
      yield {
        ...ownUnits(plan, at, units, filling),
        after: { epoch: following.epoch, position: following.position + filling.length },
      };
      if (failure !== null) throw failure.error;
      at = following;
      units = next;
    }
  } finally {
    await reader.end();
  }
}

/** The units of the next step, or why they cannot be read: the step before comes first. */
interface Ahead {
  readonly next: Unit[];
  readonly failure: { readonly error: unknown } | null;
}
const END: Ahead = { next: [], failure: null };

const nextOf = (reader: Reader, size: number): Promise<Ahead> =>
  reader.take(size).then(
    (next) => ({ next, failure: null }),
    (error: unknown) => ({ next: [], failure: { error } }),
  );

/** The first units of an epoch. @throws DataError if there are fewer */
async function firstOf(plan: StepPlan, epoch: number, count: number): Promise<Unit[]> {
  if (count <= 0) return [];
  const reader = new Reader(plan.open({ epoch, position: 0 }));
  const units = await reader.take(count);
  await reader.end();
  if (units.length === count) return units;
  throw new DataError(
    `DataLoader: ${plan.numReplicas} ranks need a sample each, and epoch ${epoch} has only ` +
      `${units.length}; give fewer ranks or more samples`,
    { numReplicas: plan.numReplicas, epoch, samples: units.length },
  );
}

/** Every `numReplicas`-th unit of a step, which has units of the next epoch at its end. */
function ownUnits(
  { numReplicas, rank }: StepPlan,
  { epoch, position }: Place,
  units: readonly Unit[],
  filling: readonly Unit[],
): Pick<Step, 'units' | 'places'> {
  const places = [
    ...units.map((_, i) => ({ epoch, position: position + i })),
    ...filling.map((_, i) => ({ epoch: epoch + 1, position: i })),
  ];
  const isOwn = (_: unknown, i: number): boolean => i % numReplicas === rank;
  return { units: [...units, ...filling].filter(isOwn), places: places.filter(isOwn) };
}

/** Takes units from an order. */
class Reader {
  private readonly iterator: Iterator<Unit> | AsyncIterator<Unit>;

  constructor(units: Iterable<Unit> | AsyncIterable<Unit>) {
    this.iterator =
      Symbol.asyncIterator in units ? units[Symbol.asyncIterator]() : units[Symbol.iterator]();
  }

  /** Up to so many units; fewer at the end. */
  async take(count: number): Promise<Unit[]> {
    const units: Unit[] = [];
    while (units.length < count) {
      const given = this.iterator.next();
      // Nothing is awaited where units are indices.
      const { done, value } = given instanceof Promise ? await given : given;
      if (done) break;
      units.push(value);
    }
    return units;
  }

  /** Ends the order early: a stream closes its file. */
  async end(): Promise<void> {
    await this.iterator.return?.();
  }
}

/** A stream in an order that depends on the seed and the epoch: each item waits among so many. */
export async function* shuffledStream(
  stream: Iterable<Unit> | AsyncIterable<Unit>,
  bufferSize: number,
  seed: number,
  epoch: number,
): AsyncGenerator<Unit, void> {
  const random = uniforms(seed, epoch);
  const buffer: Unit[] = [];
  const draw = (): number => Math.floor(random.next().value * buffer.length);
  for await (const item of stream) {
    buffer.push(item);
    if (buffer.length > bufferSize) yield taken(buffer, draw());
  }
  while (buffer.length > 0) yield taken(buffer, draw());
}

/** Takes an item out of a list, whose last item gets its place. */
function taken(list: Unit[], index: number): Unit {
  const item = list[index];
  const last = list.pop();
  if (index < list.length) list[index] = last;
  return item;
}

/** The items of a stream behind so many. */
export async function* skipping(
  stream: Iterable<Unit> | AsyncIterable<Unit>,
  count: number,
): AsyncGenerator<Unit, void> {
  let skipped = 0;
  for await (const item of stream) if (skipped++ >= count) yield item;
}
