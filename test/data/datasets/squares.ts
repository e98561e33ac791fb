/** A dataset of a module, as worker threads import it: what the options say happens in them. */
import { isMainThread, threadId } from 'node:worker_threads';

interface Options {
  length?: number;
  /** The sample that fails, ends the thread, or cannot be sent. */
  failing?: number;
  ending?: number;
  function?: number;
  /** Shared memory that each worker counts up while it lives. */
  beats?: Int32Array;
}

interface Sample {
  square: number;
  vector: Float32Array;
  thread: number;
}

/** Larger than a sample: what is sent must not take it along, nor away. */
const memory = Float32Array.from({ length: 4096 }, (_, i) => i);

export default ({ length = 20, beats, ...at }: Options = {}) => {
  if (beats !== undefined && !isMainThread) setInterval(() => Atomics.add(beats, 0, 1), 2);
  return {
    length,
    get(index: number): Sample {
      if (index === at.failing) throw new RangeError(`no square of ${index}`);
      if (index === at.ending) process.exit(3);
      const vector = memory.subarray(index, index + 4);
      const sample = { square: index ** 2, vector, thread: threadId };
      return index === at.function ? ({ ...sample, square: () => 0 } as never) : sample;
    },
  };
};
