/** The class of process groups: runs collectives by the engine of each kind of device. */
import { callContext } from '../../core/call-context.js';
import { callSite } from '../../core/call-site.js';
import type { CollectiveCall, CollectiveGroup } from '../../core/collective.js';
import {
  type Device,
  type DeviceType,
  deviceByCode,
  device as deviceOf,
  deviceTypes,
  META_ADVICE,
} from '../../core/device.js';
import { CollectiveError, DeviceError, DistributedError } from '../../core/errors.js';
import { checkFunction, checkSynchronous } from '../../core/options.js';
import { UNCHANGING } from '../../core/plain-object.js';
import { belongsToOtherRank, otherRankError, type RankRuntime } from '../../core/rank-runtime.js';
import { identify, identityOf } from '../../core/unobserved-failures.js';
import type { NativeReason } from '../../native/failure.js';
import type { BackendName, Engine, EngineFactory, GroupPlan } from '../engines/engine.js';
import { abortReason } from './abort-reason.js';
import type { CreationMismatch, GroupCreation } from './diagnosis/creation-log.js';
import type { PendingCalls } from './diagnosis/deadlock-detector.js';
import { groupText } from './group-text.js';

/** One call, for the watchers of {@link watchCollectives}. @internal */
export interface CollectiveRecord {
  readonly name: string;
  readonly group: ProcessGroup;
  readonly call: CollectiveCall;
  readonly where: string;
}

const watchers = new Set<(record: CollectiveRecord) => void>();

/**
 * Calls `watcher` with every collective, until the returned function is called. @internal
 */
export function watchCollectives(watcher: (record: CollectiveRecord) => void): () => void {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}

/** What the groups of a rank have in common. @internal */
export interface GroupOptions {
  readonly runtime: RankRuntime;
  readonly factory: EngineFactory;
  /** The deadlock detector of `local` ranks. */
  readonly pending: PendingCalls | null;
  /** The devices that the program named backends for; null: all devices have one. */
  readonly named?: readonly DeviceType[] | null;
}

/**
 * A group of ranks. All of them call the same collectives in the same order.
 *
 * @see PyTorch `torch.distributed.ProcessGroup`
 */
export class ProcessGroup implements CollectiveGroup {
  /** @internal */
  readonly [UNCHANGING] = true;
  /** The name of the group in error messages. */
  readonly name: string;
  /** Ranks of the world, in the order of the group. */
  readonly ranks: readonly number[];
  /** This rank's index in `ranks`; -1 if this rank is not a member. */
  readonly rank: number;
  /** @internal of `newGroup` */
  readonly ownStream: boolean;
  /** @internal the rank whose tensors it accepts */
  readonly runtime: RankRuntime;
  private readonly plan: GroupPlan;
  private readonly factory: EngineFactory;
  private readonly pending: PendingCalls | null;
  private readonly named: readonly DeviceType[] | null;
  private readonly engines: (Engine | undefined)[] = [];
  /** The engine of the hosts of a group whose backends are those of other devices only. */
  private hosts: Engine | undefined;
  private ended: string | null = null;
  private mismatch: CreationMismatch | null = null;
  /** The group from whose engine the GPU engine was split. */
  private source: ProcessGroup | null = null;
  /** @internal the call that created it; null for the world */
  creation: GroupCreation | null = null;
  /** @internal name or number of its mesh dimension */
  meshDim: string | null = null;

  /** @internal use `newGroup` */
  constructor(plan: GroupPlan, { runtime, factory, pending, named = null }: GroupOptions) {
    this.plan = plan;
    this.name = plan.name;
    this.ranks = Object.isFrozen(plan.ranks) ? plan.ranks : Object.freeze([...plan.ranks]);
    this.rank = plan.rank;
    this.ownStream = plan.ownStream === true;
    this.runtime = runtime;
    this.factory = factory;
    this.pending = pending;
    this.named = named;
  }

  /** Number of ranks. */
  get size(): number {
    return this.ranks.length;
  }

  /**
   * The index of this rank's shard in a collective: its rank, wrapped for a fake world whose rank
   * exceeds its size. @internal
   */
  get place(): number {
    return this.rank % this.ranks.length;
  }

  /**
   * Runs a collective.
   *
   * @param where - the {@link callSite}, if the caller knows it: a shorter stack is faster to
   * search
   * @internal
   */
  run(name: string, call: CollectiveCall, where = callSite()): void {
    this.checkOwn(name);
    const device = (call.input ?? call.output)?.device ?? call.device ?? deviceByCode(0);
    this.runOn(this.engineOf(name, device, where, call.timeoutMs), name, call, where);
  }

  /**
   * Resolves when all ranks have come to a call of devices that may wait long: their processes wait
   * for each other, not their devices. Without a limit the call itself waits. @internal
   */
  async hostsArrive(name: string, limit: { timeoutMs?: number }, where: string): Promise<void> {
    if (limit.timeoutMs === undefined) return;
    this.checkOwn(name);
    const engine = this.hostEngine(name, where, limit.timeoutMs);
    this.runOn(engine, name, { kind: 'barrier', input: null, output: null, ...limit }, where);
    const { turns } = this.runtime;
    await (turns === null ? engine.finished() : turns.wait(name, engine.finished()));
  }

  private runOn(engine: Engine, name: string, call: CollectiveCall, where: string): void {
    this.runtime.turns?.call(name);
    // If it throws, nothing was called.
    engine.run(name, call, where, callContext.purpose || (call.about ?? ''));
    this.runtime.lastCall = name;
    this.runtime.lastPlace = where;
    try {
      this.enter(name, call, engine.lane, where);
    } catch (error) {
      this.giveUp(error as Error, engine);
      throw error;
    }
    if (watchers.size > 0)
      for (const watcher of watchers) watcher({ name, group: this, call, where });
  }

  /**
   * Runs `fn` with the stream of this group's collectives as the current stream of the device. What
   * it submits is in order with them, and beside what other streams compute. On the CPU, where
   * collectives are in order with everything unless the group has its own stream, it runs `fn`.
   *
   * @throws ArgumentError for an asynchronous function; DistributedError if the group has ended
   */
  onStream<T>(device: Device, fn: () => T): T {
    checkFunction('onStream', 'fn', fn);
    if (device.type !== 'cuda' && !this.ownStream) return fn();
    const before = device.currentStream;
    device.currentStream = this.streamFor(device);
    let result: T;
    try {
      result = fn();
    } finally {
      device.currentStream = before;
    }
    checkSynchronous('onStream', result, 'it would leave the stream at its first await');
    return result;
  }

  /** @internal */
  streamFor(device: Device, op = 'onStream'): number {
    const engine = this.engineOf(op, device, '');
    return engine.streamFor?.(device) ?? engine.lane;
  }

  /** Fails a call that can never complete: on all ranks; here the error was just thrown. */
  private giveUp(error: Error, engine: Engine): void {
    const reason = abortReason(error.message, error);
    identify(error, reason);
    this.runtime.reportedFailures.add(reason.id);
    this.abort(reason);
    engine.finished().catch(() => {});
  }

  /** @throws DistributedError if it has ended, or this rank is not a member @internal */
  checkOpen(op: string): void {
    if (this.rank < 0) {
      const message =
        `${op}: ${this.runtime.label ?? 'this rank'} is not a member of group "${this.name}" ` +
        `(ranks ${this.ranks.join(', ')}). Only members call its collectives.`;
      throw new DistributedError(message, { op, group: this.name });
    }
    if (this.mismatch !== null) {
      const { message, details } = this.mismatch.error;
      const error = new CollectiveError(`${op}: group "${this.name}" has failed: ${message}`, {
        ...details,
        op,
        group: this.name,
      });
      identify(error, identityOf(this.mismatch.error));
      throw error;
    }
    if (this.ended !== null)
      throw new DistributedError(`${op}: group "${this.name}" has ended: ${this.ended}`, {
        op,
        group: this.name,
      });
  }

  /** @throws DistributedError for the group of another rank of this process @internal */
  checkOwn(op: string): void {
    if (belongsToOtherRank(this.runtime))
      throw otherRankError(op, `group "${this.name}"`, this.runtime);
  }

  /**
   * The backend of each kind of device: those that the program named, else those of all devices of
   * this machine. @internal
   */
  backends(): Partial<Record<DeviceType, BackendName>> {
    const found: Partial<Record<DeviceType, BackendName>> = {};
    for (const type of this.named ?? deviceTypes) {
      const name = this.factory.backendFor?.(this.plan, type) ?? null;
      if (name !== null) found[type] = name;
    }
    return found;
  }

  /** The device of barriers, which have no tensor. @internal */
  get barrierDevice(): Device {
    return this.named === null || this.named.includes('cpu')
      ? deviceByCode(0)
      : deviceOf(this.named[0] as DeviceType);
  }

  /** @throws DistributedError for a device without a backend */
  private checkNamed(op: string, { type }: Device): void {
    const { named } = this;
    if (type !== 'cpu' || named === null || named.includes(type)) return;
    throw new DistributedError(
      `${op}: group "${this.name}" has no engine for CPU tensors: a backend was named for ` +
        `${named.join(', ')} only. Name one for the CPU as well, such as 'cpu:shm,cuda:nccl', or ` +
        'move the tensor to the GPU.',
      { op, group: this.name },
    );
  }

  /** Whether {@link splitInto} has an effect. @internal */
  canSplit(device: Device): boolean {
    return this.ended === null && this.factory.splits?.(device) === true;
  }

  /**
   * Creates the engines of subgroups by splitting this group's engine. Every rank calls it with its
   * subgroup of each split, in the same order. A subgroup keeps an engine that it has.
   *
   * @internal
   */
  splitInto(subgroups: readonly ProcessGroup[], device: Device): void {
    const engine = this.engineOf('DeviceMesh', device);
    const where = callSite();
    for (const subgroup of subgroups) {
      const plan = subgroup.engines[device.code] === undefined ? subgroup.plan : null;
      const created = engine.split?.(plan, subgroup.ranks[0] as number, where);
      subgroup.source = this;
      if (plan !== null && created) subgroup.engines[device.code] = created;
    }
  }

  /** `ProcessGroup(tp[0,2]: rank 1 of ranks 0, 2)` */
  toString(): string {
    return groupText(this, this.ended !== null);
  }

  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return this.toString();
  }

  /** Resolves when all calls so far on tensors of the device are done. @internal */
  finished(device: Device = deviceByCode(0)): Promise<void> {
    return this.engineOf('wait', device).finished();
  }

  /**
   * Fails current and later calls of all ranks.
   *
   * @param rank - the rank of the world that gives up, if it is another member @internal
   */
  abort(reason: NativeReason, rank: number | null = null): void {
    this.ended ??= reason.message;
    const place = rank === null ? -1 : this.ranks.indexOf(rank);
    for (const engine of this.allEngines()) engine.abort(reason, place < 0 ? this.rank : place);
  }

  /**
   * Fails the group after a mismatch of its creation, or of its mesh. The ranks have also split its
   * source differently, so that fails, too. @internal
   */
  fail(mismatch: CreationMismatch): void {
    this.mismatch ??= mismatch;
    this.abort(mismatch.reason, mismatch.rank);
    this.source?.fail(mismatch);
  }

  /** @internal */
  leave(): void {
    this.ended ??=
      'this rank has left it: destroyProcessGroup was called, or its function has returned';
    try {
      this.beSeen();
    } finally {
      for (const engine of this.allEngines()) engine.leave();
      if (this.rank >= 0) this.pending?.leave(this.ranks[this.rank] as number, this.name);
    }
  }

  /**
   * Creates the CPU engine of a `local` rank that has called nothing here, so that the other ranks
   * see it leave or fail. @internal
   */
  beSeen(): void {
    if (this.pending !== null && this.rank >= 0)
      this.engines[0] ??= this.factory(this.plan, deviceByCode(0));
  }

  private enter(name: string, call: CollectiveCall, lane: number, where: string): void {
    if (this.pending === null) return;
    const { ranks, name: group } = this;
    const rank = ranks[this.rank] as number;
    const { output } = call;
    // Only CPU receives block the lane: a GPU has a stream for each group. Empty messages may be
    // skipped.
    const holdsUp = call.kind === 'recv' && output?.device.type === 'cpu' && output.numel() > 0;
    const inOrder = !this.ownStream && (call.input ?? output ?? call)?.device?.type === 'cpu';
    const entry = {
      rank,
      lane,
      group,
      members: ranks,
      name,
      where,
      inOrder,
      isBeside: this.ownStream,
      hasFailed: this.runtime.unobserved.any,
      holdsUp,
    };
    const peer = ranks[call.root ?? 0] as number;
    if (call.kind === 'send') this.pending.enterMessage(entry, rank, peer);
    else if (call.kind === 'recv') this.pending.enterMessage(entry, peer, rank);
    else this.pending.enter(entry);
  }

  private allEngines(): Engine[] {
    return [...this.engines, this.hosts].filter((engine) => engine !== undefined);
  }

  /** The engine of the CPU, also if the program named no backend for CPU tensors. */
  private hostEngine(op: string, where: string, timeoutMs: number): Engine {
    const cpu = deviceByCode(0);
    if (this.named?.includes('cpu') ?? true) return this.engineOf(op, cpu, where, timeoutMs);
    this.checkOpen(op);
    const { ranks, rank } = this;
    const name = `hosts of ${this.name}`; // the engine of the GPUs has joined by that of the group
    const firstCall = { name: op, where, timeoutMs };
    this.hosts ??= this.factory({ name, ranks, rank, firstCall }, cpu);
    return this.hosts;
  }

  private engineOf(op: string, device: Device, where?: string, timeoutMs?: number): Engine {
    const found = this.engines[device.code];
    if (found !== undefined && this.ended === null) return found;
    if (device.type === 'meta')
      throw new DeviceError(
        `${op}: expected a tensor with values, got one on meta. ${META_ADVICE}`,
        {
          op,
          device: 'meta',
        },
      );
    this.checkOpen(op);
    this.checkNamed(op, device);
    const created = this.create(op, device, where, timeoutMs);
    this.engines[device.code] = created;
    return created;
  }

  /** @param timeoutMs - how long the first call waits for the other ranks, if not as all calls */
  private create(op: string, device: Device, where?: string, timeoutMs?: number): Engine {
    if (where === undefined) return this.factory(this.plan, device);
    const limit = timeoutMs === undefined ? {} : { timeoutMs };
    return this.factory({ ...this.plan, firstCall: { name: op, where, ...limit } }, device);
  }
}
