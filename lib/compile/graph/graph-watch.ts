/** The seam that shows which graphs run. */

/** A graph that runs: op by op, or as encoded commands. @internal */
export interface RunningGraph {
  /** What a run executes, one line a command. */
  readonly kernelCode: string;
}

/** Gets each graph when it starts; null unless somebody asks. @internal */
export const graphWatch: { current: ((graph: RunningGraph) => void) | null } = { current: null };
