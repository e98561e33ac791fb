/**
 * Decides when to stop waiting for `local` ranks: all have ended, or the others may never end. A
 * rank cannot be stopped from outside, because it is a function that awaits unknown promises.
 */

/** The state of the ranks when waiting stopped. @internal */
export interface RankEnds {
  /** Ranks that have not ended. */
  readonly open: readonly number[];
  /**
   * `idle`: the event loop is empty, so the open ranks never end. `late`: the grace period after a
   * failure is over.
   */
  readonly why: 'ended' | 'idle' | 'late';
}

/**
 * Waits until all ranks have ended, the event loop is empty, or `graceMs` have passed since a rank
 * failed and the world was over (`isOver`). Without the second case Node would exit silently;
 * without the third nobody would see the error of the failed rank.
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
    if (idleListeners.size === 0) process.on('beforeExit', notifyIdle);
    idleListeners.add(onIdle);
  });
  clearTimeout(timer);
  idleListeners.delete(onIdle);
  if (idleListeners.size === 0) process.removeListener('beforeExit', notifyIdle);
  return { why, open: [...open] };
}

/** The listeners of all launches; Node would warn of many `beforeExit` listeners. */
const idleListeners = new Set<() => void>();

function notifyIdle(): void {
  for (const listener of [...idleListeners]) listener();
}
