/** Ranks that wait for commands of rank 0: a scenario of ranks.ts. */
import { setTimeout as sleep } from 'node:timers/promises';
import { barrier, broadcastObjectList, recv } from '../../../lib/distributed.js';
import { zeros } from '../../../lib/index.js';

/** The text of the error that the call ends with. */
export async function failing(call: () => unknown): Promise<string> {
  try {
    await call();
    return 'no error';
  } catch (error) {
    return (error as Error).message;
  }
}

/**
 * Two commands, the first after `idleMs`; then rank 0 dies.
 *
 * @returns what a rank has received, and the error of its last wait
 */
export async function followLeader(
  rank: number,
  idleMs: number,
): Promise<{ commands: unknown[]; error: string }> {
  const patient = { timeoutMs: Number.POSITIVE_INFINITY };
  const commands: unknown[] = [];
  for (const command of ['go', 'on']) {
    if (rank === 0 && command === 'go') await sleep(idleMs);
    const list = [rank === 0 ? command : null];
    await broadcastObjectList(list, 0, patient);
    commands.push(...list);
  }
  await barrier(patient);
  if (rank === 0) {
    await sleep(200);
    process.kill(process.pid, 'SIGKILL');
  }
  const error = await failing(() => {
    if (rank === 2) return broadcastObjectList([null], 0, patient);
    const t = zeros([1]);
    recv(t, 0, patient);
    return t.read();
  });
  return { commands, error };
}
