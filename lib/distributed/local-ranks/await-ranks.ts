/**
 * When ranks that share a process are over: all have ended, or those that have not never may. A
 * rank cannot be ended from outside, since it is a function that waits for what this process does
 * not know.
 */

/** How it stands with the ranks of a launch once it need not be waited for any more. @internal */
export interface RankEnds {
  /** Those that have not ended. */
  readonly open: readonly number[];
  /**
   * `idle`: nothing is left to do that could end them. `late`: they had their time after another
   * had failed.
   */
  readonly why: 'ended' | 'idle' | 'late';
}

/**
 * Waits until all have ended, Node has nothing left to do, or `graceMs` after a rank has failed and
 * ended the world, which `isOver` tells. Node would end without a word in the second case, and the
 * error of the rank that has failed would be heard by nobody in the third.
 *
 * @internal
 */
export async function rankEnds(
  ranks: readonly Promise<unknown>[],
  isOver: () => boolean,
  graceMs: number,
): Promise<RankEnds> {
  const open = new Set(ranks.keys());
  let timer: NodeJS.Timeout | undefined;
  let onIdle = (): void => {};
  const why = await new Promise<RankEnds['why']>((resolve) => {
    for (const [rank, run] of ranks.entries()) {
      const end = (): void => {
        open.delete(rank);
        if (open.size === 0) resolve('ended');
      };
      run.then(end, () => {
        end();
        if (isOver()) timer ??= setTimeout(() => resolve('late'), graceMs).unref();
      });
    }
    onIdle = () => resolve('idle');
    if (idleListeners.size === 0) process.on('beforeExit', tellIdle);
    idleListeners.add(onIdle);
  });
  clearTimeout(timer);
  idleListeners.delete(onIdle);
  if (idleListeners.size === 0) process.removeListener('beforeExit', tellIdle);
  return { why, open: [...open] };
}

/** Of all launches at once: Node warns of many listeners of its own. */
const idleListeners = new Set<() => void>();

function tellIdle(): void {
  for (const listener of [...idleListeners]) listener();
}
