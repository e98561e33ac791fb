/** Waits in the background for a key that nobody sets; the process exits anyway. */
import { TCPStore } from '../../../lib/distributed.js';

const store = new TCPStore('127.0.0.1', 0, { isServer: true });
await store.ready();
const quiet = store.quietly();
let isOver = false;
quiet
  .wait(['never'], 60_000)
  .finally(() => {
    isOver = true;
  })
  .catch(() => {});
void quiet.set('k', 'v');
console.log(JSON.stringify([String(await store.get('k')), isOver]));
