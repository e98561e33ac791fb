/** What a run shows: lines, JSON, curves. test/examples/terminal.test.ts has the bars of a terminal. */
import assert from 'node:assert/strict';
import {
  lossCurve,
  type Progress,
  progress,
  type StepMetrics,
  sparkline,
} from '../../lib/train/index.js';
import { meansOf } from '../../lib/train/means.js';

const event = (step: number, rank = 0): StepMetrics => ({
  step,
  rank,
  time: 0,
  loss: 1 / step,
  tokensPerSecond: 1000,
  secondsPerStep: 0.5,
  allocatedBytes: 1,
  peakAllocatedBytes: 2,
  values: { accuracy: 1 },
});

/** What a display prints, with a standard output that is no terminal. */
function printed(options: object, run: (shown: Progress) => void): string[] {
  const { log } = console;
  const { isTTY } = process.stdout;
  const lines: string[] = [];
  console.log = (text: string) => lines.push(text);
  process.stdout.isTTY = false;
  try {
    run(progress(options));
  } finally {
    console.log = log;
    process.stdout.isTTY = isTTY;
  }
  return lines;
}

describe('progress', () => {
  it('prints about twenty lines of a log, of the first rank', () => {
    const lines = printed({ ranks: 2 }, (shown) => {
      shown.begin('a model', { first: 100, steps: 145 });
      for (let step = 101; step <= 145; step++)
        for (const rank of [0, 1]) shown.write(event(step, rank));
      shown.validation(null);
      shown.validation(1.25);
      shown.close();
    });
    assert.equal(lines[0], 'a model');
    assert.equal(lines[1], 'step 102/145: loss 0.010, 1000 tokens/s');
    assert.equal(lines.length, 1 + 22 + 1 + 1);
    assert.deepEqual(lines.slice(-2), [
      'step 145/145: loss 0.007, 1000 tokens/s',
      'validation loss 1.250',
    ]);
  });

  it('prints a JSON object for each step of the first rank', () => {
    const lines = printed({ json: true }, (shown) => {
      shown.begin('a model', { steps: 2 });
      shown.write(event(1));
      shown.write(event(1, 1));
      shown.validation(2);
    });
    assert.equal(lines.length, 1);
    const { values, ...fields } = event(1);
    assert.deepEqual(JSON.parse(lines[0] as string), { ...fields, ...values });
  });

  it('refuses bad options', () => {
    assert.throws(() => progress({ ranks: 0 }), /progress: expected ranks to be a whole number/);
    assert.throws(() => progress({ json: 1 as never }), /expected json to be true or false/);
  });
});

describe('curves of a loss', () => {
  it('sum losses up as means of equal parts', () => {
    assert.deepEqual(meansOf([4, 2, 1, 1, 3], 2), [3, 5 / 3]);
    assert.deepEqual(meansOf([4, 2], 5), [4, 2]);
  });

  it('are a line of text', () => {
    assert.equal(sparkline([0, 1, 2, 3, 4, 5, 6, 7]), '▁▂▃▄▅▆▇█');
    assert.equal(sparkline([8, 8, 0, 0], 2), '█▁');
    assert.equal(sparkline([3, 3]), '▁▁');
    assert.equal(sparkline([]), '');
    assert.equal(sparkline([Number.NaN, 1]), '▁█');
  });

  it('are a picture with round numbers, a line through all losses, and a baseline', () => {
    const svg = lossCurve([5, 4, 3, 2.5], {
      title: 'loss <nats>',
      baseline: { name: 'bigram', loss: 2.25 },
    });
    const texts = [...svg.matchAll(/<text[^>]*>([^<]*)<\/text>/g)].map(([, text]) => text);
    assert.deepEqual(texts, [
      'loss &lt;nats&gt;',
      ...['2', '2.5', '3', '3.5', '4', '4.5', '5', '5.5'],
      ...['0', '1', '2', '3'],
      'bigram 2.250',
    ]);
    const [, path = ''] = /<path d="M([^"]*)"/.exec(svg) ?? [];
    const points = path.split('L').map((point) => point.split(',').map(Number));
    assert.deepEqual(
      points.map(([x]) => x),
      [48, 240, 432, 624],
    );
    const ys = points.map(([, y]) => y as number);
    assert.deepEqual(
      ys,
      [...ys].sort((a, b) => a - b),
    ); // a loss that falls
    assert.ok(ys.every((y) => y >= 28 && y <= 324));
  });

  it('draw runs of any length', () => {
    assert.match(lossCurve([]), /<path d=""/);
    assert.match(lossCurve([2]), /<path d="M48\.0,\d+\.\d"/);
    const long = lossCurve(Array.from({ length: 100_000 }, (_, i) => 1 + 1 / (i + 1)));
    assert.ok(long.length < 20_000, `${long.length}`);
    assert.match(long, />100000<|>80000</);
    for (const losses of [[], [Number.NaN, 1, Number.POSITIVE_INFINITY, 2]])
      assert.doesNotMatch(lossCurve(losses), /NaN|Infinity/);
  });
});
