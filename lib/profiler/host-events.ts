/** What the host runs while a profile is recorded: ops, nodes of backward, modules, regions. */
import type { RegionKind } from '../core/hooks.js';
import type { Shape } from '../core/shape.js';

/**
 * `op`: a call of an op. `node`: a node of the tape that backward runs; `backward`: the whole pass.
 * `module`: the forward of a module. `optimizer`: a step. `compiled`: a run of a compiled graph;
 * `compile`: the capture of one. `user`: a {@link recordFunction}. `step`: what lies between two
 * calls of {@link Profile.step}.
 */
export type ProfilerEventKind = RegionKind | 'op' | 'user' | 'step';

/** The operands of an op. */
export interface OpInputs {
  readonly shapes: readonly Shape[];
  readonly dtypes: readonly string[];
}

/** A host event while it is recorded. Times are in milliseconds, by `performance.now()`. */
export class HostEvent {
  readonly id: number;
  readonly kind: ProfilerEventKind;
  /** Its name, or the module that runs. */
  readonly subject: string | object;
  readonly parent: HostEvent | null;
  /** The modules that were running. */
  readonly modules: readonly object[];
  readonly isBackward: boolean;
  /** The number of the rank; null outside of ranks. */
  readonly rank: number | null;
  readonly start: number;
  /** NaN until it has ended. */
  end = Number.NaN;
  /** The event that ran on the stack before it. */
  readonly below: HostEvent | null;
  inputs: OpInputs | null = null;
  site: string | null = null;

  constructor(
    id: number,
    kind: ProfilerEventKind,
    subject: string | object,
    place: Pick<HostEvent, 'parent' | 'below' | 'modules' | 'isBackward' | 'rank'>,
  ) {
    this.id = id;
    this.kind = kind;
    this.subject = subject;
    this.parent = place.parent;
    this.below = place.below;
    this.modules = place.modules;
    this.isBackward = place.isBackward;
    this.rank = place.rank;
    this.start = performance.now();
  }
}
