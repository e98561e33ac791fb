/**
 * Loaded before the program in every process that a launcher made: it ends when the launcher is
 * gone, and tells it when it fails, so that the first of several failures is known. Imports
 * nothing: it is part of the start of each rank.
 */
const { channel } = process;

function tell(message: string | null): void {
  if (process.connected)
    process.send?.({
      shardwise: 'failed',
      at: performance.timeOrigin + performance.now(),
      message,
    });
}

if (channel) {
  // In a loop that never comes back nothing below is heard: the addon looks for itself.
  (globalThis as Record<symbol, unknown>)[Symbol.for('shardwise.endsWithParent')] = true;
  process.on('disconnect', () => process.exit(1));
  channel.unref(); // the program may end before the launcher does
  process.on('uncaughtExceptionMonitor', (error: unknown) => {
    tell(error instanceof Error ? error.message : String(error));
  });
  // Before the groups of this rank end, which makes others fail: they may be gone before the
  // launcher sees this process end.
  process.on('exit', (code) => {
    if (code !== 0) tell(null);
  });
}
