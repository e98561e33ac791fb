/** The two streams of a rank: kernels run in order on one, collectives in order on the other. */

/** When the streams are done with what they have got, in seconds. */
export class Streams {
  computed = 0;
  communicated = 0;

  /**
   * Runs a kernel, or a collective, which also starts behind the kernels that were called before.
   *
   * @param ready - when the collectives have ended whose results it uses
   * @returns when it starts
   */
  run(isKernel: boolean, seconds: number, ready: number): number {
    const start = Math.max(this.computed, ready, isKernel ? 0 : this.communicated);
    if (isKernel) this.computed = start + seconds;
    else this.communicated = start + seconds;
    return start;
  }
}
