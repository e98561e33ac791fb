/** The interface of engines: each carries out the collectives of groups on one kind of device. */
import type { CollectiveCall } from '../../core/collective.js';
import type { Device, DeviceType } from '../../core/device.js';
import type { NativeReason } from '../../native/failure.js';

/**
 * `shm`: ranks of one host. `nccl`: NVIDIA GPUs. `gloo`: CPU tensors across hosts. `fake`: one rank
 * without peers.
 */
export type BackendName = 'shm' | 'nccl' | 'gloo' | 'fake';

/** A backend, or one for each kind of device: `'cpu:shm,cuda:nccl'`. */
export type BackendText = BackendName | `cpu:${BackendName},cuda:${BackendName}`;

/** One rank's membership in a group, on one device. @internal */
export interface Engine {
  readonly name: BackendName;
  /** The stream that runs its calls in order. */
  readonly lane: number;
  /** The stream that runs its calls on a device, where that is not `lane`. */
  streamFor?(device: Device): number;
  /**
   * Enqueues the call. `where` is the program's line, for the errors of any rank; `about` is text
   * that must be equal on all ranks, such as the shape.
   */
  run(name: string, call: CollectiveCall, where: string, about: string): void;
  /** Resolves when all calls so far are done. */
  finished(): Promise<void>;
  /**
   * Fails current and later calls of all ranks with the reason. `place`: the group rank of the rank
   * that gives up.
   */
  abort(reason: NativeReason, place: number): void;
  /** Leaves the group once its calls are done. */
  leave(): void;
  /**
   * Optional. Creates the engine of a subgroup for the same device. Every rank of the group calls
   * it, with its subgroup or null; subgroups created by one split differ in color. Does not block:
   * a rank that cannot join gets the error from its first call.
   */
  split?(subgroup: GroupPlan | null, color: number, where: string): Engine | null;
}

/** The group that an engine is for: ranks of the world, in the order of the group. @internal */
export interface GroupPlan {
  readonly name: string;
  readonly ranks: readonly number[];
  /** This rank's index in `ranks`. */
  readonly rank: number;
  /** Name for errors, if it differs from `name`. */
  readonly label?: string;
  /** Whether ranks use the group only to find each other and compare calls. */
  readonly isRendezvous?: boolean;
  /** The most multiprocessors that a collective of GPUs occupies; left out: the engine's choice. */
  readonly maxCtas?: number;
  /**
   * Whether its collectives of CPU tensors run on a stream of their own, beside what the rank
   * computes. Nothing may block on their results.
   */
  readonly ownStream?: boolean;
  /** The call that needs the group, for errors of joining it. */
  readonly firstCall?: {
    readonly name: string;
    readonly where: string;
    /** How long it waits for the other ranks to join; as long as all calls by default. */
    readonly timeoutMs?: number;
  };
}

/** The name of a group in errors. @internal */
export const labelOf = ({ label, name }: GroupPlan): string => label ?? name;

/** The first call of a group that was not created for a call. @internal */
export const NO_CALL: NonNullable<GroupPlan['firstCall']> = { name: '', where: '' };

/** The group of all ranks. @internal */
export const WORLD = 'world';

/** A group as one rank creates it; all ranks of the world do, members or not. @internal */
export interface CreatedGroup {
  /** The rank that creates it. */
  readonly rank: number;
  /** Counts the rank's groups from 1. */
  readonly number: number;
  readonly name: string;
  readonly ranks: readonly number[];
  /** The beginning of errors, and the line of the call. */
  readonly title: string;
  readonly where: string;
  /** Counts the rank's calls that create groups or meshes. */
  readonly creation: number;
}

/**
 * Creates the engine of a group for a device. Every member calls it at its first call on that kind
 * of device. @internal
 */
export interface EngineFactory {
  (plan: GroupPlan, device: Device): Engine;
  /**
   * Optional. Whether engines for the device can be split, which is faster than creating the
   * subgroups one by one.
   */
  splits?(device: Device): boolean;
  /** Optional. Whether kernels may be loaded onto the device while ranks run; true by default. */
  loadsKernels?(device: Device): boolean;
  /**
   * Optional. Publishes a group creation to the other ranks, without blocking. If two ranks create
   * the group of different ranks, the later one throws.
   */
  publish?(group: CreatedGroup): void;
  /**
   * Optional. The backend of a group for a kind of device, without creating an engine; null if this
   * machine has no such device.
   */
  backendFor?(plan: GroupPlan, type: DeviceType): BackendName | null;
}

/** The engines of a rank. @internal */
export interface Engines {
  readonly make: EngineFactory;
  /** Called when the rank leaves its world: no more groups will be created. */
  leave(): void;
}

/** What all ranks of a world know about each other after the rendezvous. @internal */
export interface Agreement {
  /** By rank; equal for ranks that reach the same shared memory. */
  readonly hosts: readonly string[];
  readonly hostNames: readonly string[];
  readonly pids: readonly number[];
  /** Distinguishes the run from others, in names. */
  readonly run: string;
  /** The same as a number. */
  readonly token: number;
  /** Where draws on meshes start, on all ranks: the state of rank 0. */
  readonly random: { readonly seed: number; readonly offset: number };
}
