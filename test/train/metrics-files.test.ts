/**
 * Files of metrics. `fixtures/events.tfevents` was written by TensorBoard's own writer, and its
 * reader reads a file with the same bytes (`fixtures/make.py`).
 */
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { scalarsRecord, versionRecord } from '../../lib/train/event-file.js';
import {
  JsonlWriter,
  type StepMetrics,
  SummaryWriter,
  TrainMetrics,
} from '../../lib/train/index.js';

const metrics: StepMetrics = {
  step: 7,
  time: 1_700_000_000_500,
  rank: 0,
  loss: 2.5,
  secondsPerStep: 0.25,
  allocatedBytes: 1024,
  peakAllocatedBytes: 2048,
  values: { accuracy: 0.75 },
};

describe('files of metrics', () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(path.join(tmpdir(), 'shardwise-metrics-'));
  });
  afterEach(() => rmSync(folder, { recursive: true }));

  it('have the bytes that the writer of TensorBoard writes', () => {
    const expected = readFileSync(path.join(import.meta.dirname, 'fixtures', 'events.tfevents'));
    const records = [
      versionRecord(1.25),
      scalarsRecord(1.5, 0, [{ tag: 'train/loss', value: 5.25 }]),
      scalarsRecord(1234567890.125, 1, [
        { tag: 'train/loss', value: -0.1 },
        { tag: 'train/grüße', value: 3e-8 },
      ]),
      scalarsRecord(1234567891, 127, [{ tag: 'x', value: 0 }]),
      scalarsRecord(1234567892, 128, [
        { tag: 'x', value: 1e30 },
        { tag: 'y'.repeat(200), value: 2 },
      ]),
      scalarsRecord(1234567893, 2 ** 40 + 5, [
        { tag: 'inf', value: Number.POSITIVE_INFINITY },
        { tag: '-inf', value: Number.NEGATIVE_INFINITY },
      ]),
    ];
    assert.deepEqual(Buffer.concat(records), expected);
  });

  it('are found by TensorBoard, with metrics below a prefix and numbers of the program', () => {
    using writer = new SummaryWriter(path.join(folder, 'runs', 'one'));
    assert.match(path.basename(writer.file), /^events\.out\.tfevents\.\d{10}\.[^/]+\.\d+\.\d+$/);
    writer.addScalar('accuracy', 0.5, 3, 1.5);
    writer.write(metrics);
    const version = versionRecord(0).length; // at another time
    const bytes = readFileSync(writer.file).subarray(version);
    const scalars = {
      loss: 2.5,
      secondsPerStep: 0.25,
      allocatedBytes: 1024,
      peakAllocatedBytes: 2048,
      accuracy: 0.75,
    };
    const expected = [
      scalarsRecord(1.5, 3, [{ tag: 'accuracy', value: 0.5 }]),
      scalarsRecord(
        1_700_000_000.5,
        7,
        Object.entries(scalars).map(([name, value]) => ({ tag: `train/${name}`, value })),
      ),
    ];
    assert.deepEqual(Buffer.from(bytes), Buffer.concat(expected));
    using second = new SummaryWriter(path.join(folder, 'runs', 'one'), { prefix: '' });
    assert.notEqual(second.file, writer.file);
    assert.equal(readdirSync(path.join(folder, 'runs', 'one')).length, 2);
  });

  it('are JSON Lines that a run goes on with', () => {
    const file = path.join(folder, 'deep', 'metrics.jsonl');
    for (const step of [1, 2]) {
      using writer = new JsonlWriter(file);
      writer.write({ ...metrics, step });
    }
    const { values, ...fields } = metrics;
    const lines = readFileSync(file, 'utf8').trim().split('\n');
    assert.deepEqual(
      lines.map((line) => JSON.parse(line)),
      [1, 2].map((step) => ({ ...fields, ...values, step })),
    );
  });

  it('are written by TrainMetrics, and closed with it', async () => {
    const file = path.join(folder, 'metrics.jsonl');
    const writers = [new JsonlWriter(file), new SummaryWriter(folder)];
    const run = new TrainMetrics({ writers });
    run.step(1, { loss: 3 });
    assert.equal(JSON.parse(readFileSync(file, 'utf8')).loss, 3); // at once
    await run.close();
    assert.throws(() => writers[0]?.write(metrics), { code: 'EBADF' });
  });

  it('refuse what is no path and no number', () => {
    assert.throws(() => new JsonlWriter(''), /JsonlWriter: expected file to be a path, got ''/);
    assert.throws(() => new SummaryWriter(3 as never), /expected logDir to be a path, got 3/);
    using writer = new SummaryWriter(folder);
    assert.throws(() => writer.addScalar('', 1), /expected tag to be a text/);
    assert.throws(() => writer.addScalar('a', '1' as never), /expected value to be a number/);
    assert.throws(() => writer.addScalar('a', 1, 0.5), /globalStep to be a whole number/);
  });
});
