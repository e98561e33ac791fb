/** The end of a rank: what it has called is done, and has not failed unheard. */
import type { Home } from '../core/home.js';
import { streamDone } from './engines/native-engine.js';

/**
 * What a rank has called on the CPU is done when it ends. GPUs are not asked: the stream of a group still has a failure that was heard of on
 * another one.
 *
 * @throws the failure of what nobody has read or asked for
 * @internal
 */
export async function lastFailures(home: Home, op: string): Promise<void> {
  const stream = home.devices[0]?.currentStream ?? -1;
  const isTold = (error: unknown): boolean => home.told.some((words) => (error as Error).message.includes(words));
  if (stream >= 0)
    await streamDone(stream, op).catch((error: unknown) => {
      if (!isTold(error)) throw error;
    });
  home.unheard.check();
}
