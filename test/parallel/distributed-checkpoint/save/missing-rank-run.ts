/**
 * One of three process ranks that meet at `<folder>/ranks`. All save a sharded state; rank 2 gets the
 * signal `<signal>` while it writes. The others print how long they waited, and for which error.
 */
import { promises } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import path from 'node:path';
import {
  Checkpointer,
  type CollectiveDetails,
  distributedCheckpoint,
  distributeTensor,
  initDeviceMesh,
  initProcessGroup,
  Shard,
} from '../../../../lib/distributed.js';
import { full, type ShardwiseError } from '../../../../lib/index.js';

const [folder, number, backend, signal, form] = process.argv.slice(2) as [
  string,
  string,
  string,
  NodeJS.Signals,
  'save' | 'wait' | 'close',
];
const rank = Number(number);

await initProcessGroup(backend, {
  initMethod: `file://${folder}/ranks`,
  rank,
  worldSize: 3,
  timeoutMs: 3000,
});
const w = distributeTensor(full([300, 50], 1), initDeviceMesh('cpu', [3]), [Shard(0)]);
const run = path.join(folder, 'run');
await distributedCheckpoint.save(path.join(run, 'step-1'), { w });

const { rename } = promises;
promises.rename = async (...names) => {
  if (rank === 2) process.kill(process.pid, signal);
  return rename(...names);
};
syncBuiltinESMExports();

const checkpointer = new Checkpointer({ folder: run, every: 1, keep: 5 });
const begin = performance.now();
try {
  const to = path.join(run, 'step-2');
  if (form === 'save') await distributedCheckpoint.save(to, { w });
  else if (form === 'wait')
    await (await distributedCheckpoint.save(to, { w }, { async: true })).wait();
  else {
    await checkpointer.step(2, { w });
    console.error('closes');
    await checkpointer.close();
  }
} catch (error) {
  const { name, message, details } = error as ShardwiseError & { details: CollectiveDetails };
  const ms = performance.now() - begin;
  console.log(JSON.stringify({ name, message, ranks: details.ranks, ms }));
}
process.exit();
