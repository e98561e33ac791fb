/**
 * Lets Node run the TypeScript of this repository: `node --import ./scripts/typescript.mjs
 * file.ts`. The tests start some hundreds of processes, most of whose time was that of loading the
 * library: this loader caches compiled files, and gives programs bundles of the library, whose
 * stacks have no lines of lib. SHARDWISE_TEST_BUNDLES=off loads its modules one by one.
 */
import { register } from 'node:module';
import { isMainThread } from 'node:worker_threads';

const [, program = ''] = process.argv;
const bundles =
  isMainThread && /\.m?ts$/.test(program) && process.env['SHARDWISE_TEST_BUNDLES'] !== 'off';
register('./typescript-hooks.mjs', import.meta.url, { data: bundles ? program : null });
process.setSourceMapsEnabled(true);
