/**
 * The `gloo` engine: collectives of ranks on several machines, over TCP. The ranks exchange
 * addresses through their store once, when the world starts. Native threads create groups over
 * these connections without JavaScript.
 */
import { deviceByCode } from '../../core/device.js';
import { DistributedError, TimeoutError } from '../../core/errors.js';
import { nativeCall, streamOf, writer } from '../../eager/submit.js';
import { describeTried, openGloo, WITHOUT_GLOO } from '../../native/gloo.js';
import { PrefixStore, type Store } from '../stores/index.js';
import { type EngineFactory, labelOf, NO_CALL } from './engine.js';
import {
  leaveStream,
  NativeEngine,
  streamDone,
  streamOfGroup,
  words,
  writeRanks,
} from './native-engine.js';

/** How a rank connects to the others. @internal */
export interface GlooOptions {
  readonly op: string;
  readonly store: Store;
  readonly rank: number;
  readonly worldSize: number;
  /** The address by which the others reach this machine. */
  readonly address: string;
  readonly timeoutMs: number;
}

/** First byte of what a rank publishes. */
const ADDRESSES = 1;
const ERROR = 0;
/** Key that counts the ranks which have read all addresses. */
const READ = 'read';

/** @throws DistributedError with the paths tried, if gloo-engine.so cannot be used @internal */
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
   * Connects to all other ranks. @throws DistributedError naming a rank without gloo, TimeoutError
   * naming a rank that does not come
   */
  static async open(options: GlooOptions): Promise<GlooWorld> {
    const { op, rank, timeoutMs } = options;
    const store = new PrefixStore('gloo/world', options.store);
    const own = String(rank);
    let world: GlooWorld | null = null;
    try {
      const addresses = listen(options);
      world = new GlooWorld(words()[0] as number, timeoutMs);
      await store.set(own, Buffer.concat([Buffer.of(ADDRESSES), Buffer.from(addresses)]));
    } catch (error) {
      // Published so that the others do not wait for this rank.
      await store
        .set(own, Buffer.concat([Buffer.of(ERROR), Buffer.from((error as Error).message)]))
        .catch(() => {});
      throw error;
    }
    try {
      const theirs = await addressesFor(store, options);
      nativeCall(() => writer.addon.glooConnect(world.id, world.stream, theirs), op);
      await streamDone(world.stream, op);
      return world;
    } catch (error) {
      world.leave();
      throw error;
    }
  }

  /** A factory whose engines join their group at its first call. */
  engines(): EngineFactory {
    return (plan, device) => {
      const { name, ranks, rank } = plan;
      const stream = streamOfGroup(plan, device);
      const { addon } = writer;
      const first = plan.firstCall ?? NO_CALL;
      const joinTimeoutMs = first.timeoutMs ?? this.timeoutMs;
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
        { join: () => call(() => addon.glooJoin(...group, joinTimeoutMs)), decline },
        stream,
        () => leaveStream(plan, stream),
      );
    };
  }

  /** Closes the connections for new groups; existing groups stay. */
  leave(): void {
    nativeCall(() => writer.addon.glooLeave(this.id, this.stream), 'destroyProcessGroup');
  }
}

function listen({ op, rank, worldSize, timeoutMs, address }: GlooOptions): ArrayBuffer {
  requireGloo(op);
  return nativeCall(() => writer.addon.glooListen(rank, worldSize, timeoutMs, address), op);
}

/** The address of every other rank for this one. */
async function addressesFor(
  store: Store,
  { op, rank, worldSize, timeoutMs }: GlooOptions,
): Promise<ArrayBuffer> {
  const ranks = Array.from({ length: worldSize }, (_, other) => other);
  const published = await Promise.all(
    ranks.map((other) => publishedBy(store, other, op, timeoutMs)),
  );
  // The last reader deletes the keys: even a rank that is connected may have readers left.
  if ((await store.add(READ, 1)) === worldSize)
    await Promise.all([...ranks.map(String), READ].map((key) => store.deleteKey(key)));
  const failed = published.findIndex((bytes) => bytes[0] !== ADDRESSES);
  if (failed >= 0) {
    const reason = (published[failed] as Buffer).toString('utf8', 1);
    throw new DistributedError(`${op}: rank ${failed} cannot connect to the others: ${reason}`, {
      op,
      rank: failed,
    });
  }
  const length = ((published[rank] as Buffer).length - 1) / worldSize;
  const addresses = published.map((bytes) =>
    bytes.subarray(1 + rank * length, 1 + (rank + 1) * length),
  );
  return new Uint8Array(Buffer.concat(addresses)).buffer;
}

async function publishedBy(
  store: Store,
  other: number,
  op: string,
  timeoutMs: number,
): Promise<Buffer> {
  try {
    await store.wait([String(other)], timeoutMs);
    return await store.get(String(other));
  } catch (error) {
    if (!(error instanceof TimeoutError)) throw error;
    throw new TimeoutError(
      `${op}: rank ${other} did not publish its address within ${timeoutMs} ms`,
      { op, missing: [other], timeoutMs },
      { cause: error },
    );
  }
}
