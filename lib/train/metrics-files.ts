/**
 * Files of metrics: JSON Lines, and the event files of TensorBoard. What is written is in the file
 * when the call returns, so that a run that ends at a signal loses nothing: some 100 bytes a step
 * take microseconds.
 */
import { closeSync, mkdirSync, openSync, writeSync } from 'node:fs';
import { hostname } from 'node:os';
import path from 'node:path';
import { checkLimit, checkNumber, optionsOf, unexpected } from '../core/options.js';
import { type Scalar, scalarsRecord, versionRecord } from './event-file.js';
import { flatMetrics, type MetricsWriter, type StepMetrics } from './metrics.js';

/** A file that grows; its folder is made. */
class GrowingFile {
  private readonly descriptor: number;
  private isOpen = true;

  constructor(file: string) {
    mkdirSync(path.dirname(file), { recursive: true });
    this.descriptor = openSync(file, 'a');
  }

  append(bytes: Uint8Array): void {
    for (let at = 0; at < bytes.length; ) at += writeSync(this.descriptor, bytes, at);
  }

  close(): void {
    if (this.isOpen) closeSync(this.descriptor);
    this.isOpen = false;
  }
}

function checkPath(op: string, name: string, value: unknown): void {
  if (typeof value !== 'string' || value === '') throw unexpected(op, name, 'a path', value);
}

/**
 * Writes metrics as a JSON object on each line. A file that exists is continued, as by a run that
 * goes on. Numbers that are not finite are null.
 *
 * @throws ArgumentError for what is no path; errors of the system
 */
export class JsonlWriter implements MetricsWriter {
  private readonly file: GrowingFile;

  constructor(file: string) {
    checkPath('JsonlWriter', 'file', file);
    this.file = new GrowingFile(file);
  }

  /** Writes a line. @throws errors of the system */
  write(metrics: StepMetrics): void {
    this.file.append(Buffer.from(`${JSON.stringify(flatMetrics(metrics))}\n`));
  }

  /** Closes the file. */
  close(): void {
    this.file.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/** Options of {@link SummaryWriter}. */
export interface SummaryWriterOptions {
  /** What the names of metrics begin with. `'train/'` by default. */
  prefix?: string;
}

/** What says which step it is, and is drawn along no axis. */
const KEYS: readonly string[] = ['step', 'time', 'rank'] satisfies (keyof StepMetrics)[];

/** Files that this process has begun. */
let files = 0;

/**
 * Writes an event file into a folder, which `tensorboard --logdir` shows: metrics of a
 * {@link TrainMetrics}, and numbers of the program. A run that goes on has one more file.
 *
 * @throws ArgumentError for what is no path; errors of the system
 * @see PyTorch `torch.utils.tensorboard.SummaryWriter`
 */
export class SummaryWriter implements MetricsWriter {
  /** The path of the file. */
  readonly file: string;
  private readonly events: GrowingFile;
  private readonly prefix: string;

  constructor(logDir: string, options: SummaryWriterOptions = {}) {
    const op = 'SummaryWriter';
    checkPath(op, 'logDir', logDir);
    const { prefix = 'train/' } = optionsOf(op, options, 'prefix');
    if (typeof prefix !== 'string') throw unexpected(op, 'prefix', 'a text', prefix);
    const seconds = Math.floor(Date.now() / 1000);
    const name = `events.out.tfevents.${seconds}.${hostname()}.${process.pid}.${files++}`;
    this.prefix = prefix;
    this.file = path.join(logDir, name);
    this.events = new GrowingFile(this.file);
    this.events.append(versionRecord(Date.now() / 1000));
  }

  /**
   * Writes a number, at a step. @throws ArgumentError for other values; a tensor is read by
   * `await t.itemAsync()` before
   */
  addScalar(tag: string, value: number, globalStep = 0, walltime = Date.now() / 1000): void {
    const op = 'SummaryWriter.addScalar';
    if (typeof tag !== 'string' || tag === '') throw unexpected(op, 'tag', 'a text', tag);
    if (!Number.isNaN(value)) checkLimit(op, 'value', value);
    checkNumber(op, 'globalStep', globalStep, { from: 0, whole: true });
    checkNumber(op, 'walltime', walltime);
    this.events.append(scalarsRecord(walltime, globalStep, [{ tag, value }]));
  }

  /** Writes all numbers of a step. @throws errors of the system */
  write(metrics: StepMetrics): void {
    const scalars: Scalar[] = Object.entries(flatMetrics(metrics))
      .filter(([name]) => !KEYS.includes(name))
      .map(([name, value]) => ({ tag: `${this.prefix}${name}`, value }));
    this.events.append(scalarsRecord(metrics.time / 1000, metrics.step, scalars));
  }

  /** Closes the file. */
  close(): void {
    this.events.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
