/** The captures that a compiled function keeps, of which one serves a call. */
import type { RankRuntime } from '../core/rank-runtime.js';
import type { Tensor } from '../core/tensor.js';
import type { CompiledGraph } from './backends.js';
import type { CaptureRecord, Compiled } from './capture-record.js';
import type { Graph } from './graph/graph.js';
import { ClosureClock } from './guards/closure-facts.js';
import type { Guards } from './guards/guards.js';

/** A capture, and when it serves a call. */
export interface Entry extends CaptureRecord, Compiled {
  readonly graph: Graph | null;
  readonly guards: Guards;
  /** Whether the modes and arguments alone decide. */
  readonly byArguments: boolean;
  readonly rank: RankRuntime;
  /** Constants of the graph. */
  readonly constants: ReadonlySet<Tensor>;
  /** The number of the latest call that it served. */
  lastUse: number;
  /** The calls that it served. */
  uses: number;
}

/** Shapes that a dynamic graph keeps captures of. */
const MAX_SHAPES = 64;

export class Entries {
  readonly all: Entry[] = [];
  /** The one that served the latest call. */
  private latest: Entry | null = null;
  private readonly clock = new ClosureClock();
  private calls = 0;

  /** The capture whose guards hold for a call. */
  find(args: readonly unknown[], inputs: readonly Tensor[]): Entry | null {
    const { latest, all, clock } = this;
    clock.tick();
    if (latest !== null && serves(latest, args, inputs, clock)) return latest;
    for (const entry of all)
      if (entry !== latest && serves(entry, args, inputs, clock)) return entry;
    return null;
  }

  /** Counts a call that a capture serves; null if none does. */
  used(entry: Entry | null): void {
    this.latest = entry;
    if (entry === null) return;
    entry.lastUse = ++this.calls;
    entry.uses++;
  }

  of(rank: RankRuntime): Entry[] {
    return this.all.filter((entry) => entry.rank === rank);
  }

  /** The captures that what a backend made of one graph serves. */
  ofGraph(run: CompiledGraph): Entry[] {
    return this.all.filter((entry) => entry.run === run);
  }

  keep(entry: Entry): void {
    const same = entry.run === null ? [] : this.ofGraph(entry.run);
    if (same.length >= MAX_SHAPES) {
      const least = same.reduce((a, b) => (b.lastUse < a.lastUse ? b : a));
      this.all.splice(this.all.indexOf(least), 1);
    }
    this.all.push(entry);
  }
}

const serves = (
  { byArguments, guards }: Entry,
  args: readonly unknown[],
  inputs: readonly Tensor[],
  clock: ClosureClock,
): boolean => (byArguments ? guards.matchArguments(args) : guards.match(args, inputs, clock));
