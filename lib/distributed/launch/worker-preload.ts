/**
 * Preloaded into every process of a launcher. Ends the process when the launcher is gone, and
 * reports failures with their time, so that the launcher knows the first. Imports nothing of the
 * library, because it adds to the start time of each rank.
 */
import { createRequire } from 'node:module';

const { channel, env } = process;

/** A thread of the addon watches the launcher: no event arrives while the program blocks. */
function endWithLauncher(): void {
  const file = env['SHARDWISE_LAUNCHER_ADDON'];
  if (!file) return; // without an addon the event alone ends the process
  try {
    (createRequire(file)(file) as { endWithParent(): void }).endWithParent();
  } catch {
    return; // where the program loads the library, that says why the addon cannot be loaded
  }
  // It has ended before the thread looked at it.
  if (String(process.ppid) !== env['SHARDWISE_LAUNCHER_PID']) process.exit(1);
}

function report(message: string | null): void {
  if (process.connected)
    process.send?.({
      shardwise: 'failed',
      at: performance.timeOrigin + performance.now(),
      message,
    });
}

if (channel) {
  endWithLauncher();
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
