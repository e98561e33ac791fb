/** A module that cannot be imported in a worker thread. */
import { isMainThread } from 'node:worker_threads';

if (!isMainThread) throw new Error('no such table');

export default [1, 2, 3];
