/**
 * Preloaded into every process of a launcher. Ends the process when the launcher is gone, and
 * reports failures with their time, so that the launcher knows the first. Imports nothing, because
 * it adds to the start time of each rank.
 */
const { channel } = process;

function report(message: string | null): void {
  if (process.connected)
    process.send?.({
      shardwise: 'failed',
      at: performance.timeOrigin + performance.now(),
      message,
    });
}

if (channel) {
  // The addon also watches the parent, because no event arrives during an endless loop.
  (globalThis as Record<symbol, unknown>)[Symbol.for('shardwise.endsWithParent')] = true;
  process.on('disconnect', () => process.exit(1));
  channel.unref(); // the program may end before the launcher does
  process.on('uncaughtExceptionMonitor', (error: unknown) => {
    report(error instanceof Error ? error.message : String(error));
  });
  // Reported before the groups of this rank end and other ranks fail: these may end before the
  // launcher sees the end of this process.
  process.on('exit', (code) => {
    if (code !== 0) report(null);
  });
}
