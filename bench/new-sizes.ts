/**
 * Compiled functions whose sizes change at each call, beside uncompiled ones, over lengths that
 * come once. Where a size takes a capture, most of the time are captures. usage: new-sizes.ts
 * [lengths]
 */
import { cat, compile, manualSeed, nn, noGrad, rand, scope, type Tensor } from '../lib/index.js';
import { median } from './figures.js';
import { print, type Row } from './measure.js';

const LENGTHS = Number(process.argv[2] ?? 120);
const BACKENDS = ['eager', 'aot_eager', 'inductor'] as const;

/** A program that is called with a longer tensor each time. */
interface Program {
  readonly name: string;
  /** A fresh function, and what calls it at each length. */
  make(compiled: (fn: Step) => Step): (length: number) => void;
}

type Step = (...args: Tensor[]) => Tensor[];

/** One token against the keys and values of those before, which it is appended to. */
const growingCache: Program = {
  name: 'decoding with a cache that grows',
  make(compiled) {
    const width = 64;
    const heads = 4;
    const layers = [0, 1].map(() => ({
      qkv: new nn.Linear(width, 3 * width),
      out: new nn.Linear(width, width),
      norm: new nn.LayerNorm([width]),
    }));
    const perHead = (t: Tensor): Tensor => t.view([1, 1, heads, width / heads]).transpose(1, 2);
    const step = compiled((token, ...caches) => {
      let x = token as Tensor;
      const grown = layers.flatMap(({ qkv, out, norm }, i) => {
        const [q, k, v] = qkv(norm(x)).chunk(3, -1).map(perHead) as [Tensor, Tensor, Tensor];
        const keys = cat([caches[2 * i] as Tensor, k], 2);
        const values = cat([caches[2 * i + 1] as Tensor, v], 2);
        const found = nn.functional.scaledDotProductAttention(q, keys, values);
        x = x.add(out(found.transpose(1, 2).reshape([1, 1, width])));
        return [keys, values];
      });
      return [x, ...grown];
    });
    const token = rand([1, 1, width]);
    return (length) => {
      const caches = layers.flatMap(() =>
        [0, 1].map(() => rand([1, heads, length, width / heads])),
      );
      noGrad(() => step(token, ...caches));
    };
  },
};

const encoderLayer: Program = {
  name: 'an encoder layer, forward and backward',
  make(compiled) {
    const layer = new nn.TransformerEncoderLayer(64, 4, { dimFeedforward: 128, dropout: 0 });
    const step = compiled((x) => [layer(x as Tensor) as Tensor]);
    return (length) =>
      void step(rand([length, 2, 64]))[0]
        ?.sum()
        .backward();
  },
};

/** Milliseconds of each call. */
function timesOf(work: (length: number) => void, lengths: readonly number[]): number[] {
  return lengths.map((length) => {
    const start = performance.now();
    scope(() => work(length));
    return performance.now() - start;
  });
}

const sum = (times: readonly number[]): number => times.reduce((a, b) => a + b, 0);

/** Lengths whose calls are captures. */
const CAPTURED = 3;
const ROUNDS = 20;
const lengths = Array.from({ length: LENGTHS }, (_, i) => 16 + i);
for (const { name, make } of [growingCache, encoderLayer]) {
  manualSeed(0);
  const row = (what: string, value: number, unit: Row['unit'] = 'ms'): void =>
    print({ name: `${name}, ${what}`, unit, value });
  const plain = make((fn) => fn);
  for (let round = 0; round < ROUNDS; round++) timesOf(plain, lengths);
  for (const backend of BACKENDS) {
    const work = make((fn) => compile(fn, { backend }));
    const uncompiled = timesOf(plain, lengths);
    const first = timesOf(work, lengths);
    const again = timesOf(work, lengths);
    row('uncompiled, a call', median(uncompiled));
    row(`${backend}, the first ${CAPTURED} lengths together`, sum(first.slice(0, CAPTURED)));
    row(`${backend}, a call with a new length`, median(first.slice(CAPTURED)));
    row(
      `${backend}, all ${LENGTHS} lengths beside uncompiled`,
      sum(first) / sum(uncompiled),
      'times',
    );
    row(
      `${backend}, the same lengths again beside uncompiled`,
      sum(again) / sum(uncompiled),
      'times',
    );
  }
}
