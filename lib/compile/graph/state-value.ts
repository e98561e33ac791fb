/** The value of an effect while the run of a graph is recorded in another graph. */

/** Stands for a version or a random state that only a run of the new graph knows. @internal */
export class StateValue {
  /** The node of the new graph. */
  readonly node: object;
  /** The version of the tensor in the capture, or the function that restores the generator. */
  readonly now: unknown;

  constructor(node: object, now: unknown) {
    this.node = node;
    this.now = now;
  }
}
