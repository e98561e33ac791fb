/** A stream whose items this thread reads, and worker threads make samples of. */
import { threadId } from 'node:worker_threads';

export default {
  *[Symbol.iterator]() {
    for (let i = 0; i < 10; i++) yield `line ${i}`;
  },
  get: (line: string) => ({ line, thread: threadId }),
};
