/**
 * The `gloo` engine: tensors between ranks of several machines, over TCP. The ranks exchange
 * addresses through their store once, when the world begins; groups are made over its connections,
 * by native threads alone.
 */
import { deviceByCode } from '../../core/device.js';
import { DistributedError, TimeoutError } from '../../core/errors.js';
import { nativeCall, streamOf, writer } from '../../eager/submit.js';
import { describeTried, openGloo, WITHOUT_GLOO } from '../../native/gloo.js';
import { PrefixStore, type Store } from '../stores/index.js';
import { type EngineFactory, labelOf, NO_CALL } from './engine.js';
import { NativeEngine, streamDone, words, writeRanks } from './native-engine.js';

/** Who meets, and how. @internal */
export interface Meeting {
  readonly op: string;
  readonly store: Store;
  readonly rank: number;
  readonly worldSize: number;
  /** Of this machine, as the others reach it. */
  readonly address: string;
  readonly timeoutMs: number;
}

/** First byte of what a rank says. */
const ADDRESSES = 1;
const ERROR = 0;
/** How many ranks have read what all say. */
const READ = 'read';

/** @throws DistributedError with what was tried, where gloo-engine.so cannot be used @internal */
export function requireGloo(op: string): void {
  const search = openGloo(writer.addon);
  if (search.path === null)
    throw new DistributedError(
      `${op}: the gloo engine cannot be used. ${WITHOUT_GLOO}.${describeTried(search)}`,
      { op, tried: search.tried },
    );
}

/** The connections of a rank to all others. @internal */
export class GlooWorld {
  private readonly id: number;
  private readonly stream: number;
  private readonly timeoutMs: number;

  private constructor(id: number, timeoutMs: number) {
    this.id = id;
    this.stream = streamOf(deviceByCode(0));
    this.timeoutMs = timeoutMs;
  }

  /**
   * @throws DistributedError naming a rank that has no gloo, TimeoutError for those that do not
   * come
   */
  static async open(meeting: Meeting): Promise<GlooWorld> {
    const { op, rank, timeoutMs } = meeting;
    const store = new PrefixStore('gloo/world', meeting.store);
    const own = String(rank);
    let world: GlooWorld | null = null;
    try {
      const addresses = listen(meeting);
      world = new GlooWorld(words()[0] as number, timeoutMs);
      await store.set(own, Buffer.concat([Buffer.of(ADDRESSES), Buffer.from(addresses)]));
    } catch (error) {
      // The others shall not wait for this rank.
      await store
        .set(own, Buffer.concat([Buffer.of(ERROR), Buffer.from((error as Error).message)]))
        .catch(() => {});
      throw error;
    }
    try {
      const theirs = await addressesFor(store, meeting);
      nativeCall(() => writer.addon.glooConnect(world.id, world.stream, theirs), op);
      await streamDone(world.stream, op);
      return world;
    } catch (error) {
      world.leave();
      throw error;
    }
  }

  /** Makes the engine of a group at its first call. */
  engines(): EngineFactory {
    return (plan, device) => {
      const { name, ranks, rank } = plan;
      const stream = streamOf(device);
      const { addon } = writer;
      const first = plan.firstCall ?? NO_CALL;
      const group = [
        this.id,
        rank,
        ranks.length,
        stream,
        this.timeoutMs,
        name,
        labelOf(plan),
        first.name,
        first.where,
      ] as const;
      const call = <T>(native: () => T): T => {
        writeRanks(ranks);
        return nativeCall(native, 'newGroup');
      };
      const decline = (reason: string, place: number): void =>
        call(() => addon.glooDecline(...group, place, reason));
      return new NativeEngine(
        'gloo',
        { join: () => call(() => addon.glooJoin(...group)), decline },
        stream,
      );
    };
  }

  /** No more groups are made; those that there are stay. */
  leave(): void {
    nativeCall(() => writer.addon.glooLeave(this.id, this.stream), 'destroyProcessGroup');
  }
}

function listen({ op, rank, worldSize, timeoutMs, address }: Meeting): ArrayBuffer {
  requireGloo(op);
  return nativeCall(() => writer.addon.glooListen(rank, worldSize, timeoutMs, address), op);
}

/** What every other rank has for this one. */
async function addressesFor(
  store: Store,
  { op, rank, worldSize, timeoutMs }: Meeting,
): Promise<ArrayBuffer> {
  const ranks = Array.from({ length: worldSize }, (_, other) => other);
  const said = await Promise.all(ranks.map((other) => saidBy(store, other, op, timeoutMs)));
  // Whoever is the last to have read them takes them away: one that is connected may still be about
  // to be read.
  if ((await store.add(READ, 1)) === worldSize)
    await Promise.all([...ranks.map(String), READ].map((key) => store.deleteKey(key)));
  const failed = said.findIndex((bytes) => bytes[0] !== ADDRESSES);
  if (failed >= 0)
    throw new DistributedError(
      `${op}: rank ${failed} cannot connect to the others: ${(said[failed] as Buffer).toString('utf8', 1)}`,
      { op, rank: failed },
    );
  const length = ((said[rank] as Buffer).length - 1) / worldSize;
  const parts = said.map((bytes) => bytes.subarray(1 + rank * length, 1 + (rank + 1) * length));
  return new Uint8Array(Buffer.concat(parts)).buffer;
}

async function saidBy(store: Store, other: number, op: string, timeoutMs: number): Promise<Buffer> {
  try {
    await store.wait([String(other)], timeoutMs);
    return await store.get(String(other));
  } catch (error) {
    if (!(error instanceof TimeoutError)) throw error;
    throw new TimeoutError(
      `${op}: rank ${other} did not say where it listens within ${timeoutMs} ms`,
      { op, missing: [other], timeoutMs },
      { cause: error },
    );
  }
}
