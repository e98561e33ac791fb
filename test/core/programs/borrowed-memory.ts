/**
 * Transfers the memory of a tensor while work on it is pending: `borrowed-memory <how> <what is
 * pending>`. Prints the result, unless the process crashes.
 */
import { fromBlob, ones, type Tensor, zeros } from '../../../lib/index.js';

const COUNT = 1 << 20;
const SIDE = 900;
const filling = Array.from({ length: 8 }, () => 0);

/** Memory that is taken at once from what was freed, with other values in it. */
const takers: Float32Array[] = [];

const goings: Readonly<Record<string, (array: Float32Array) => void>> = {
  transferred: (array) => {
    structuredClone(array.buffer, { transfer: [array.buffer as ArrayBuffer] });
  },
  posted: (array) => {
    const { port1 } = new MessageChannel();
    port1.postMessage(array, [array.buffer as ArrayBuffer]);
    port1.close();
  },
  resized: (array) => {
    (array.buffer as ArrayBuffer & { resize(bytes: number): void }).resize(0);
  },
};

/** Over a buffer that may be resized, but does not say so. */
function disguised(): Float32Array {
  const buffer = new (
    ArrayBuffer as unknown as new (
      bytes: number,
      options: { maxByteLength: number },
    ) => ArrayBuffer
  )(COUNT * 4, { maxByteLength: COUNT * 4 });
  Object.defineProperty(buffer, 'resizable', { value: false });
  return new Float32Array(buffer);
}

const uses: Readonly<Record<string, (t: Tensor) => unknown>> = {
  read: (t) =>
    Promise.all(Array.from({ length: 4 }, () => t.add(1)).map((sum) => sum.max().read())).then(
      (sums) => sums.map((each) => each[0]),
    ),
  written: async (t) => {
    for (let i = 0; i < 4; i++) t.add_(1);
    return 'written';
  },
  copied: (t) =>
    t
      .clone()
      .min()
      .read()
      .then((each) => each[0]),
  fetched: (t) => t.read().then((each) => (each as Float32Array).every((value) => value === 3)),
  filled: async (t) => {
    t.copy_(zeros([COUNT]));
    return 'written';
  },
};

const [how, what] = process.argv.slice(2) as [string, string];
try {
  const array = (how === 'resized' ? disguised() : new Float32Array(COUNT)).fill(3);
  const t = fromBlob(array);
  const x = ones([SIDE, SIDE]);
  const busy = filling.map(() => x.matmul(x)); // what comes now waits behind them
  const result = (uses[what] as (t: Tensor) => Promise<unknown>)(t);
  (goings[how] as (array: Float32Array) => void)(array);
  for (let i = 0; i < 4; i++) {
    globalThis.gc?.();
    takers.push(new Float32Array(COUNT).fill(7));
  }
  console.log(JSON.stringify({ result: await result, busy: busy.length, takers: takers.length }));
} catch (error) {
  console.log(JSON.stringify({ error: (error as { code?: string }).code }));
}
