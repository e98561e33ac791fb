/** What carries out the collectives of a group on one kind of device. */
import type { CollectiveCall } from '../../core/collective.js';
import type { Device, DeviceType } from '../../core/device.js';

/**
 * `shm`: memory of one host. `nccl`: NVIDIA GPUs. `gloo`: CPU tensors across hosts. `fake`: nothing
 * is sent.
 */
export type BackendName = 'shm' | 'nccl' | 'gloo' | 'fake';

/** A backend, or one for each kind of device: `'cpu:shm,cuda:nccl'`. */
export type BackendText = BackendName | `cpu:${BackendName},cuda:${BackendName}`;

/** One rank's membership in a group, by one engine. @internal */
export interface Engine {
  readonly name: BackendName;
  /** The stream that works its calls off, in order. */
  readonly lane: number;
  /**
   * Gives the call to the device. `where` is the program's line, for errors of any rank; `about`
   * what ranks must have in common beside the call.
   */
  run(name: string, call: CollectiveCall, where: string, about: string): void;
  /** Resolves when all that was called so far is done. */
  finished(): Promise<void>;
  /**
   * Present and later calls of all ranks fail with the reason. `place`: in the group, of the rank
   * that gives up.
   */
  abort(reason: string, place: number): void;
  /** Once its calls are done. */
  leave(): void;
  /**
   * Optional. The engine of a part of the group, for the same device: every rank of the group calls
   * it, with its part or none. Parts that are made at once have each a color of their own. Waits
   * for nobody; who cannot join the part is told by its first call.
   */
  split?(part: GroupPlan | null, color: number, where: string): Engine | null;
}

/** The group that an engine is for: ranks of the world, in the order of the group. @internal */
export interface GroupPlan {
  readonly name: string;
  readonly ranks: readonly number[];
  /** One's own place in them. */
  readonly rank: number;
  /** What errors call it, where that is not its name. */
  readonly label?: string;
  /** Its ranks only find each other by it. */
  readonly meets?: boolean;
  /** What the program called that needs it, for errors until it is there. */
  readonly firstCall?: { readonly name: string; readonly where: string };
}

/** What errors call a group. @internal */
export const labelOf = ({ label, name }: GroupPlan): string => label ?? name;

/** Of a group that is made for no call. @internal */
export const NO_CALL: NonNullable<GroupPlan['firstCall']> = { name: '', where: '' };

/** The group of all ranks. @internal */
export const WORLD = 'world';

/** A group as all ranks of the world make it, members or not. @internal */
export interface MadeGroup {
  /** Who makes it, of the world. */
  readonly rank: number;
  /** Counts its groups from 1. */
  readonly number: number;
  readonly name: string;
  readonly ranks: readonly number[];
  /** How errors begin, and the call that makes it. */
  readonly title: string;
  readonly where: string;
  /** Counts the rank's calls that make groups or meshes. */
  readonly making: number;
}

/**
 * Makes the engine of a group for a device; called by every member, at its first call there.
 * @internal
 */
export interface EngineFactory {
  (plan: GroupPlan, device: Device): Engine;
  /**
   * Optional. Whether the engines for the device can be split, and are worth being made for it
   * before they are called.
   */
  splits?(device: Device): boolean;
  /**
   * Optional. Tells the other ranks of a group that this one makes, without waiting. Where a rank
   * has made that one of other ranks, the later of the two throws.
   */
  announce?(group: MadeGroup): void;
  /**
   * Optional. What the engine of a group is for such devices; null for what this machine has not.
   * Makes none.
   */
  backendFor?(plan: GroupPlan, type: DeviceType): BackendName | null;
}

/** The engines of a rank. @internal */
export interface Engines {
  readonly make: EngineFactory;
  /** No more groups are made. */
  leave(): void;
}
