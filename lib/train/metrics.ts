/** Metrics of training steps as a stream of events, without a wait for the device in the loop. */
import { channel } from 'node:diagnostics_channel';
import { checkNumber, optionsOf, unexpected } from '../core/options.js';
import { type Device, type DeviceName, device as deviceOf, memory, Tensor } from '../index.js';
import { peakFlopsOf } from './flops.js';

/** What a step of training did. Fields that the program does not give are not there. */
export interface StepMetrics {
  /** Steps done. */
  readonly step: number;
  /** Milliseconds since 1970. */
  readonly time: number;
  /** The rank that reports it. */
  readonly rank: number;
  /** The loss of the step. */
  readonly loss?: number;
  /** The norm of the gradients of the step. */
  readonly gradNorm?: number;
  /** The learning rate of the step. */
  readonly lr?: number;
  /** Seconds of a step, as a mean since the event before. */
  readonly secondsPerStep: number;
  /** Tokens a second since the event before. */
  readonly tokensPerSecond?: number;
  /** Model FLOPs utilization: the share of the devices' peak that the model needs. */
  readonly mfu?: number;
  /** Bytes in tensors. */
  readonly allocatedBytes: number;
  /** The most bytes in tensors so far. */
  readonly peakAllocatedBytes: number;
  /** Seconds of a step in which the device only communicates. */
  readonly exposedCommunicationSeconds?: number;
  /** What else the program reports, by name. */
  readonly values: Readonly<Record<string, number>>;
}

/** What takes the events of a {@link TrainMetrics}, such as a file or a progress bar. */
export interface MetricsWriter {
  /** Takes an event. */
  write(metrics: StepMetrics): void;
  /** Takes no more of them. */
  close(): void;
}

/** Numbers of a step; tensors of one element are read when they are there, without a wait. */
export interface StepValues {
  /** The loss of the step. */
  loss?: number | Tensor;
  /** The norm of the gradients, as `nn.utils.clipGradNorm_` returns it. */
  gradNorm?: number | Tensor;
  /** The learning rate of the step. */
  lr?: number;
  /** Tokens of the step, in place of the option. */
  tokens?: number;
  /** Seconds in which the device only communicated, as `exposedCommunication` gives them. */
  exposedCommunicationSeconds?: number;
  /** What else to report, by name. */
  values?: Readonly<Record<string, number | Tensor>>;
}

/** Options of {@link TrainMetrics}. */
export interface TrainMetricsOptions {
  /** An event after each so manyth step; others cost nothing. 1 by default. */
  every?: number;
  /** Tokens of a step, if all steps have as many. */
  tokens?: number;
  /** Floating-point operations a token, such as of `transformerFlops`. */
  flopsPerToken?: number;
  /** The peak of the devices that the tokens are of, together; that of `device` by default. */
  peakFlops?: number;
  /** The device whose memory is reported. `'cpu'` by default. */
  device?: DeviceName | Device;
  /** The rank that reports. 0 by default. */
  rank?: number;
  /** What takes the events, in addition to subscribers of the channel. */
  writers?: readonly MetricsWriter[];
}

/** The name of the channel of `node:diagnostics_channel` that has all events. */
export const TRAIN_STEP_CHANNEL = 'shardwise:train:step';
const events = channel(TRAIN_STEP_CHANNEL);

const OP = 'TrainMetrics';
const OPTIONS = 'every tokens flopsPerToken peakFlops device rank writers';
const VALUES = 'loss gradNorm lr tokens exposedCommunicationSeconds values';

/**
 * Makes an event of a step: loss, norm of gradients, tokens a second, memory. It goes to `writers`
 * and to the channel `shardwise:train:step` of `node:diagnostics_channel`, where exporters of other
 * packages subscribe.
 *
 * A loss that is a tensor is read in the background, so that the loop need not wait for the device.
 * Its event comes when it is known, in the order of the steps.
 *
 * @throws ArgumentError for bad options
 * @example
 * const metrics = new TrainMetrics({ tokens: 8192, every: 10 });
 * metrics.step(10, { loss, lr: 1e-3 });
 * await metrics.close();
 */
export class TrainMetrics {
  private readonly every: number;
  private readonly tokens: number;
  private readonly flopsPerToken: number | null;
  private readonly peakFlops: number | null;
  private readonly device: Device;
  private readonly rank: number;
  private readonly writers: readonly MetricsWriter[];
  /** Since the last event. */
  private since = start();
  /** Events whose values are still read. */
  private pending: Promise<void> | null = null;
  private failure: { readonly error: unknown } | null = null;

  constructor(options: TrainMetricsOptions = {}) {
    const given = optionsOf(OP, options, OPTIONS);
    const { every = 1, tokens = 0, flopsPerToken = null, rank = 0, writers = [] } = given;
    for (const [name, value] of Object.entries({ every, tokens, rank }))
      checkNumber(OP, name, value, { from: name === 'every' ? 1 : 0, whole: true });
    if (flopsPerToken !== null) checkNumber(OP, 'flopsPerToken', flopsPerToken, { above: 0 });
    if (!Array.isArray(writers) || writers.some((each) => typeof each?.write !== 'function'))
      throw unexpected(OP, 'writers', 'a list of objects with write and close', writers);
    this.device = deviceOf(given.device ?? 'cpu');
    const { peakFlops = peakFlopsOf(this.device) } = given;
    if (peakFlops !== null) checkNumber(OP, 'peakFlops', peakFlops, { above: 0 });
    this.every = every;
    this.tokens = tokens;
    this.flopsPerToken = flopsPerToken;
    this.peakFlops = peakFlops;
    this.rank = rank;
    this.writers = writers;
  }

  /**
   * Call it at the end of each step. @throws ArgumentError for bad values; the error of an earlier
   * event: of a tensor that could not be read, or of a writer
   */
  step(step: number, values: StepValues = {}): void {
    this.throwFailure();
    const op = `${OP}.step`;
    checkNumber(op, 'step', step, { from: 0, whole: true });
    const { tokens = this.tokens } = optionsOf(op, values, VALUES);
    checkNumber(op, 'tokens', tokens, { from: 0 });
    this.since.steps++;
    this.since.tokens += tokens;
    if (step % this.every !== 0) return;
    if (this.writers.length === 0 && !events.hasSubscribers) return;
    const { steps, tokens: counted } = this.since;
    this.since.steps = this.since.tokens = 0;
    const counts = { step, steps, tokens: counted };
    const given = Object.entries(flat(values)).map(
      ([name, value]) => [name, reading(op, name, value)] as const,
    );
    if (this.pending === null && given.every(([, value]) => typeof value === 'number'))
      this.publish(counts, new Map(given as [string, number][]), values);
    else this.publishLater(counts, given, values);
  }

  /** Leaves the time since the last event out, such as that of a validation. */
  restart(): void {
    this.since = start();
  }

  /** Resolves when all events so far are out. @throws as {@link step} */
  async flush(): Promise<void> {
    await this.pending;
    this.throwFailure();
  }

  /** Waits for the last events, and closes the writers. @throws as {@link step} */
  async close(): Promise<void> {
    await this.pending;
    for (const writer of this.writers) writer.close();
    this.throwFailure();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  private throwFailure(): void {
    const { failure } = this;
    this.failure = null;
    if (failure !== null) throw failure.error;
  }

  private publishLater(
    counts: Counts,
    given: readonly (readonly [string, number | Promise<number>])[],
    values: StepValues,
  ): void {
    const reads = Promise.all(given.map(async ([name, value]) => [name, await value] as const));
    reads.catch(() => {}); // kept below, when its turn comes
    const before = this.pending;
    const published = (async () => {
      await before;
      this.publish(counts, new Map(await reads), values);
    })().catch((error: unknown) => {
      this.failure ??= { error };
    });
    this.pending = published;
    void published.then(() => {
      if (this.pending === published) this.pending = null;
    });
  }

  private publish(
    { step, steps, tokens }: Counts,
    read: ReadonlyMap<string, number>,
    { lr, exposedCommunicationSeconds, values = {} }: StepValues,
  ): void {
    const now = performance.now();
    const seconds = (now - this.since.time) / 1000;
    this.since.time = now;
    const { allocatedBytes, peakAllocatedBytes } = memory.stats(this.device);
    const tokensPerSecond = tokens === 0 ? undefined : tokens / seconds;
    const event: StepMetrics = withoutMissing({
      step,
      time: Date.now(),
      rank: this.rank,
      loss: read.get('loss'),
      gradNorm: read.get('gradNorm'),
      lr,
      secondsPerStep: seconds / steps,
      tokensPerSecond,
      mfu: this.mfuOf(tokensPerSecond),
      allocatedBytes,
      peakAllocatedBytes,
      exposedCommunicationSeconds,
      values: Object.fromEntries(
        Object.keys(values).map((name) => [name, read.get(`values.${name}`) as number]),
      ),
    });
    for (const writer of this.writers) writer.write(event);
    events.publish(event);
  }

  private mfuOf(tokensPerSecond: number | undefined): number | undefined {
    const { flopsPerToken, peakFlops } = this;
    if (tokensPerSecond === undefined || flopsPerToken === null || peakFlops === null) return;
    return (tokensPerSecond * flopsPerToken) / peakFlops;
  }
}

const start = () => ({ steps: 0, tokens: 0, time: performance.now() });

/** An event in one level: with what the program added beside the rest. */
export const flatMetrics = ({ values, ...metrics }: StepMetrics): Record<string, number> => ({
  ...metrics,
  ...values,
});

interface Counts {
  readonly step: number;
  readonly steps: number;
  readonly tokens: number;
}

/** The values that may be tensors, by name. */
function flat({ loss, gradNorm, values = {} }: StepValues): Record<string, number | Tensor> {
  const own = Object.entries({ loss, gradNorm }).filter(([, value]) => value !== undefined);
  const others = Object.entries(values).map(([name, value]) => [`values.${name}`, value]);
  return Object.fromEntries([...own, ...others]);
}

/** The number, or a promise of that of a tensor. @throws ArgumentError */
function reading(op: string, name: string, value: number | Tensor): number | Promise<number> {
  if (typeof value === 'number') return value;
  if (!(value instanceof Tensor) || value.numel() !== 1)
    throw unexpected(op, name, 'a number or a tensor of one element', value);
  return value.itemAsync().then(Number);
}

/** The object without the fields that are undefined. */
function withoutMissing(
  fields: { [Name in keyof StepMetrics]: StepMetrics[Name] | undefined },
): StepMetrics {
  const present = Object.entries(fields).filter(([, value]) => value !== undefined);
  return Object.fromEntries(present) as unknown as StepMetrics;
}
