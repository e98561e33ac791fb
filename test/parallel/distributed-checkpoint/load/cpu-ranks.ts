/** Two CPU ranks save and load; prints how often this process has opened the CUDA backend. */
import { distributedCheckpoint, launch } from '../../../../lib/distributed.js';
import { ones } from '../../../../lib/index.js';
import { loadAddon } from '../../../../lib/native/load.js';

const [folder] = process.argv.slice(2) as [string];
const addon = loadAddon();
const { openBackend } = addon;
let opened = 0;
addon.openBackend = (...args) => {
  opened++;
  return openBackend(...args);
};
await launch(2, async () => {
  const state = { x: ones([3]) };
  await distributedCheckpoint.save(folder, state);
  await distributedCheckpoint.load(folder, state);
});
console.log(JSON.stringify({ opened }));
