/** The calls of the addon that record profiles. */

/** Float64 numbers of what a profile has recorded; names are numbers of `names`. */
export interface NativeProfile {
  names: string[];
  /**
   * Number, op, name, whether a kernel, whether it ran at once, how many ran together, device,
   * stream, rank runtime, start and end in microseconds.
   */
  commands: ArrayBuffer;
  /**
   * What GPUs did: command or 0, kind (0 kernel, 1 copy, 2 fill), name, device, stream of the
   * driver or -1, bytes, start and end.
   */
  activities: ArrayBuffer;
  /**
   * Op, device (-1: pinned memory), rank runtime, bytes that were allocated, or freed if negative,
   * allocated and reserved bytes after it, time.
   */
  memory: ArrayBuffer;
}

/** @internal */
export interface ProfileCalls {
  /**
   * Records the commands of a rank of this process, or for rank runtime 0 of all, until {@link
   * profileStop}. `words`: two int32 numbers that both sides share, the same at every call:
   * JavaScript writes the op that runs, and the addon the number of the last command. The first
   * call decides: `onHost`: commands of the CPU too. `timer` of GPUs: 0 none, 1 events, 2 CUPTI,
   * which is looked for at the candidates, one a line. Returns why CUPTI is not used, or ''.
   */
  profileStart(
    rankRuntime: number,
    words: ArrayBuffer,
    onHost: boolean,
    timer: number,
    candidates: string,
  ): string;
  /** No more commands are recorded; those before it are, when they run. */
  profileStop(rankRuntime: number): void;
  /** Whether all commands of the rank that are recorded have run; for 0, those of all. */
  profileDone(rankRuntime: number): boolean;
  /** Takes what was recorded since the last call; see `lib/profiler/native-records.ts`. */
  profileTake(): NativeProfile;
  /** Microseconds of the clock of a profile. */
  profileClock(): number;
}
