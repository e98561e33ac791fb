/** Groups of ranks, and the collectives that they are given. */
import { callSite } from '../../core/call-site.js';
import { type CollectiveCall, type CollectiveGroup, purpose } from '../../core/collective.js';
import {
  type Device,
  type DeviceType,
  deviceByCode,
  device as deviceOf,
  deviceTypes,
} from '../../core/device.js';
import { CollectiveError, DistributedError } from '../../core/errors.js';
import { type Home, isAnothers, usedByAnother } from '../../core/home.js';
import { wordsOf } from '../../eager/collective-failure.js';
import type { BackendName, Engine, EngineFactory, GroupPlan } from '../engines/engine.js';
import type { Difference, Making } from './creation-log.js';
import type { PendingCalls } from './deadlock-detector.js';

/** What was called, for those that count it: {@link watchCollectives}. @internal */
export interface CollectiveRecord {
  readonly name: string;
  readonly group: ProcessGroup;
  readonly call: CollectiveCall;
  readonly where: string;
}

/** As many are written out; of more, how many there are. */
const SHOWN_RANKS = 16;

const watchers = new Set<(record: CollectiveRecord) => void>();

/**
 * Calls `watcher` with every collective from now on, until the returned function is called.
 * @internal
 */
export function watchCollectives(watcher: (record: CollectiveRecord) => void): () => void {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}

/** What a group has of its rank. @internal */
export interface GroupOptions {
  readonly home: Home;
  readonly factory: EngineFactory;
  /** Of `local` ranks. */
  readonly pending: PendingCalls | null;
  /** The devices that the program has named backends for; if it has named none, all have one. */
  readonly named?: readonly DeviceType[] | null;
}

/**
 * Some of the ranks of a program, which call collectives together: all of them, in one order.
 *
 * @see PyTorch `torch.distributed.ProcessGroup`
 */
export class ProcessGroup implements CollectiveGroup {
  /** The name of the group in error messages. */
  readonly name: string;
  /** Ranks of the world, in the order of the group. */
  readonly ranks: readonly number[];
  /** One's own place in it; -1 for a rank that is no member. */
  readonly rank: number;
  /** @internal whose tensors it takes */
  readonly home: Home;
  private readonly factory: EngineFactory;
  private readonly pending: PendingCalls | null;
  private readonly named: readonly DeviceType[] | null;
  private readonly engines: (Engine | undefined)[] = [];
  private ended: string | null = null;
  private difference: Difference | null = null;
  /** Whose engines for GPUs its own are parts of. */
  private source: ProcessGroup | null = null;
  /** @internal the call that made it; null for the world */
  making: Making | null = null;
  /** @internal the mesh dimension that it was made for, by name or number */
  meshDim: string | null = null;

  /** @internal use `newGroup` */
  constructor(plan: GroupPlan, { home, factory, pending, named = null }: GroupOptions) {
    this.name = plan.name;
    this.ranks = plan.ranks;
    this.rank = plan.rank;
    this.home = home;
    this.factory = factory;
    this.pending = pending;
    this.named = named;
  }

  /** How many ranks it has. */
  get size(): number {
    return this.ranks.length;
  }

  /**
   * Which part of a collective is its own: its rank, but for a rank of a fake world that is beyond
   * its size. @internal
   */
  get place(): number {
    return this.rank % this.ranks.length;
  }

  /**
   * @param where - the {@link callSite}, from who knows it: the shorter the stack, the sooner it is
   * found @internal
   */
  run(name: string, call: CollectiveCall, where = callSite()): void {
    this.checkOwn(name);
    const engine = this.engineOf(
      name,
      (call.input ?? call.output)?.device ?? call.device ?? deviceByCode(0),
      where,
    );
    this.home.turns?.call(name);
    // throws for what cannot be called: then nothing was
    engine.run(name, call, where, purpose.text || (call.about ?? ''));
    this.home.lastCall = name;
    this.home.lastPlace = where;
    try {
      this.enter(name, call, engine.lane, where);
    } catch (error) {
      this.giveUp(error as Error, engine);
      throw error;
    }
    if (watchers.size > 0)
      for (const watcher of watchers) watcher({ name, group: this, call, where });
  }

  /** Of a call that is under way and can never complete: all ranks hear of it, this one has. */
  private giveUp({ message }: Error, engine: Engine): void {
    this.home.told.push(message);
    this.abort(message);
    engine.finished().catch(() => {});
  }

  /** @throws DistributedError if it has ended, or this rank is no member @internal */
  checkOpen(op: string): void {
    if (this.rank < 0) {
      const message = `${op}: ${this.home.label ?? 'this rank'} is no member of group "${this.name}" (ranks ${this.ranks.join(', ')}). Only members call its collectives.`;
      throw new DistributedError(message, { op, group: this.name });
    }
    if (this.difference !== null) {
      const { message, details } = this.difference.error;
      throw new CollectiveError(`${op}: group "${this.name}" has failed before: ${message}`, {
        ...details,
        op,
        group: this.name,
      });
    }
    if (this.ended !== null)
      throw new DistributedError(`${op}: group "${this.name}" has ended: ${this.ended}`, {
        op,
        group: this.name,
      });
  }

  /** @throws DistributedError for the group of another rank of this process @internal */
  checkOwn(op: string): void {
    if (isAnothers(this.home)) throw usedByAnother(op, `group "${this.name}"`, this.home);
  }

  /**
   * What moves its tensors, by the kind of their device: what the program has named, else of all
   * that are there. @internal
   */
  backends(): Partial<Record<DeviceType, BackendName>> {
    const found: Partial<Record<DeviceType, BackendName>> = {};
    for (const type of this.named ?? deviceTypes) {
      const name = this.factory.backendFor?.(this, type) ?? null;
      if (name !== null) found[type] = name;
    }
    return found;
  }

  /** Where its ranks meet without tensors. @internal */
  get meetingDevice(): Device {
    return this.named === null || this.named.includes('cpu')
      ? deviceByCode(0)
      : deviceOf(this.named[0] as DeviceType);
  }

  /** @throws DistributedError for tensors of a device that the program has named no backend for */
  private checkNamed(op: string, { type }: Device): void {
    const { named } = this;
    if (type !== 'cpu' || named === null || named.includes(type)) return;
    throw new DistributedError(
      `${op}: group "${this.name}" has no engine for CPU tensors: a backend was named for ${named.join(', ')} only. Name one for the CPU as well, such as 'cpu:shm,cuda:nccl', or move the tensor to the GPU.`,
      { op, group: this.name },
    );
  }

  /** Whether {@link splitInto} does anything. @internal */
  canSplit(device: Device): boolean {
    return this.ended === null && this.factory.splits?.(device) === true;
  }

  /**
   * The engines of parts of the group, whose own can be split: each rank gives its part of each
   * cut, in one order. A part keeps an engine that it has.
   *
   * @internal
   */
  splitInto(parts: readonly ProcessGroup[], device: Device): void {
    const whole = this.engineOf('DeviceMesh', device);
    const where = callSite();
    for (const part of parts) {
      const isNew = part.engines[device.code] === undefined;
      const made = whole.split?.(isNew ? part : null, part.ranks[0] as number, where);
      part.source = this;
      if (isNew && made) part.engines[device.code] = made;
    }
  }

  /** `ProcessGroup(tp[0,2]: rank 1 of ranks 0, 2)` */
  toString(): string {
    const shown =
      this.ranks.length <= SHOWN_RANKS
        ? this.ranks.join(', ')
        : `${this.ranks.slice(0, SHOWN_RANKS).join(', ')}, … (${this.ranks.length})`;
    return `ProcessGroup(${this.name}: ${this.rank < 0 ? 'not a member, of' : `rank ${this.rank} of`} ranks ${shown}${this.ended === null ? '' : ', ended'})`;
  }

  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return this.toString();
  }

  /** Resolves when all that was called so far on tensors of the device is done. @internal */
  finished(device: Device = deviceByCode(0)): Promise<void> {
    return this.engineOf('wait', device).finished();
  }

  /**
   * @param rank - who gives up, of the world, if it is another one of the group: it may not come to
   * say so itself @internal
   */
  abort(reason: string, rank: number | null = null): void {
    this.ended ??= wordsOf(reason);
    const place = rank === null ? -1 : this.ranks.indexOf(rank);
    for (const engine of this.engines) engine?.abort(reason, place < 0 ? this.rank : place);
  }

  /**
   * Ranks have made it, or the mesh that it is of, in different ways: so they have split its source
   * differently, too. @internal
   */
  fail(difference: Difference): void {
    this.difference ??= difference;
    this.abort(difference.reason, difference.rank);
    this.source?.fail(difference);
  }

  /** @internal */
  leave(): void {
    this.ended ??=
      'this rank has left it: destroyProcessGroup was called, or its function has returned';
    try {
      this.beSeen();
    } finally {
      for (const engine of this.engines) engine?.leave();
      if (this.rank >= 0) this.pending?.leave(this.ranks[this.rank] as number, this.name);
    }
  }

  /**
   * Of local ranks, called by the rank itself: who has never called anything here has still to be
   * seen to leave or to fail. @internal
   */
  beSeen(): void {
    if (this.pending !== null && this.rank >= 0)
      this.engines[0] ??= this.factory(this, deviceByCode(0));
  }

  private enter(name: string, call: CollectiveCall, lane: number, where: string): void {
    if (this.pending === null) return;
    const { ranks, name: group } = this;
    const rank = ranks[this.rank] as number;
    const { output } = call;
    // A GPU has a stream for each group, of which nobody knows here; a message without bytes may be
    // passed over.
    const holdsUp = call.kind === 'recv' && output?.device.type === 'cpu' && output.numel() > 0;
    const inOrder = (call.input ?? output ?? call)?.device?.type === 'cpu';
    const entry = {
      rank,
      lane,
      group,
      members: ranks,
      name,
      where,
      inOrder,
      hasFailed: this.home.unheard.any,
      holdsUp,
    };
    const peer = ranks[call.root ?? 0] as number;
    if (call.kind === 'send') this.pending.enterMessage(entry, rank, peer);
    else if (call.kind === 'recv') this.pending.enterMessage(entry, peer, rank);
    else this.pending.enter(entry);
  }

  private engineOf(op: string, device: Device, where?: string): Engine {
    const found = this.engines[device.code];
    if (found !== undefined && this.ended === null) return found;
    this.checkOpen(op);
    this.checkNamed(op, device);
    const { name, ranks, rank } = this;
    const made = this.factory(
      where === undefined ? this : { name, ranks, rank, firstCall: { name: op, where } },
      device,
    );
    this.engines[device.code] = made;
    return made;
  }
}
