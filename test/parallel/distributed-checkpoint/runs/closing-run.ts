/**
 * Two process ranks that close a `Checkpointer` while a save in the background goes on: rank 1 writes
 * no file before there is a file `go` in `<folder>`.
 */
import { existsSync, promises } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Checkpointer, launch } from '../../../../lib/distributed.js';
import { full } from '../../../../lib/index.js';

const [folder] = process.argv.slice(2) as [string];

await launch(
  2,
  async (rank) => {
    if (rank === 1) {
      const { rename } = promises;
      promises.rename = async (...names) => {
        while (!existsSync(path.join(folder, 'go'))) await sleep(10);
        return rename(...names);
      };
      syncBuiltinESMExports();
    }
    const checkpointer = new Checkpointer({ folder, every: 1 });
    await checkpointer.step(1, { t: full([1000], 7) });
    console.log(`rank ${rank} closes`);
    await checkpointer.close();
    console.log(`rank ${rank} has closed`);
  },
  { mode: 'process', prefixOutput: false },
);
