/** `profiler.profile`: records what a function does, on the host and on devices. */
import { runDeferred } from '../core/deferred.js';
import { ArgumentError } from '../core/errors.js';
import { checkFunction, unexpected } from '../core/options.js';
import { currentRuntime, type RankRuntime } from '../core/rank-runtime.js';
import { reportUse } from '../core/unrepeatable.js';
import { type ChromeTrace, chromeTrace } from './chrome-trace.js';
import {
  type Events,
  eventsOf,
  type KernelEvent,
  type MemoryEvent,
  type ProfilerEvent,
} from './events.js';
import type { HostEvent } from './host-events.js';
import { isRecorded, isRecording } from './host-recorder.js';
import { type KeyAverages, type KeyAveragesOptions, keyAverages } from './key-averages.js';
import type { DeviceTimer } from './native-log.js';
import { OP, type ProfileOptions, settingsOf } from './profile-options.js';
import type { ProfilerAction, ProfilerSchedule } from './schedule.js';
import { type Recorded, Session, type SessionSettings } from './session.js';
import { writeTrace } from './write-trace.js';

const POLL_MS = 1;

interface Result {
  readonly recorded: Recorded;
  readonly events: Events;
}

/** A profile that is recorded, and then what it has recorded. */
export class Profile {
  private readonly runtime: RankRuntime;
  private readonly settings: SessionSettings;
  private readonly scheduled: ProfilerSchedule | null;
  private readonly onTraceReady: ((profile: Profile) => void) | null;
  private session: Session | null = null;
  private openStep: { readonly session: Session; readonly event: HostEvent } | null = null;
  private action: ProfilerAction = 'none';
  private result: Result | null = null;
  /** Sessions that have ended while their commands had to wait for other ranks. */
  private readonly pending: Session[] = [];
  private steps = 0;
  private isOpen = true;

  /** @internal */
  constructor(options: ProfileOptions) {
    this.runtime = currentRuntime();
    this.settings = settingsOf(options);
    this.scheduled = options.schedule ?? null;
    this.onTraceReady = options.onTraceReady ?? null;
  }

  /** The number of the step that runs, from 0. */
  get stepNumber(): number {
    return this.steps;
  }

  /** @internal */
  start(): void {
    runDeferred();
    this.enter(this.scheduled?.(0) ?? 'record');
  }

  /**
   * Ends a step, such as an iteration of training, and starts the next one. With a schedule it
   * starts and ends what is recorded.
   *
   * @throws ArgumentError after the end of the profile
   * @see PyTorch `torch.profiler.profile.step`
   */
  step(): void {
    const op = 'Profile.step';
    reportUse(op);
    if (!this.isOpen)
      throw new ArgumentError(
        `${op}: expected a profile that is recorded, got one that has ended: call step() inside ` +
          'of the function that profiler.profile runs',
        { op },
      );
    runDeferred();
    this.closeStep();
    const before = this.action;
    this.steps++;
    const next = this.scheduled?.(this.steps) ?? 'record';
    if (before === 'recordAndSave') this.save();
    else if (before === 'warmup' && next !== 'warmup') this.drop();
    this.enter(next);
  }

  private enter(action: ProfilerAction): void {
    this.action = action;
    if (action === 'none') this.drop();
    else if (this.session === null) {
      checkNotNested();
      this.session = new Session(this.runtime, this.settings);
    }
    if (this.session !== null)
      this.openStep = { session: this.session, event: this.session.openStep(this.stepName) };
  }

  private get stepName(): string {
    return `ProfilerStep#${this.steps}`;
  }

  private closeStep(): void {
    if (this.openStep !== null) this.openStep.session.closeStep(this.openStep.event);
    this.openStep = null;
  }

  /** Ends what is recorded without a trace. */
  private drop(): void {
    this.session?.stop();
    this.session?.take();
    this.session = null;
  }

  private save(): void {
    const { session } = this;
    if (session === null) return;
    session.stop();
    this.session = null;
    if (this.runtime.world.isShared && !session.isDone) this.pending.push(session);
    else this.collect(session);
  }

  /** Waits for what was recorded, and gives the trace. */
  private collect(session: Session): void {
    while (!session.isDone) Atomics.wait(SLEEP, 0, 0, POLL_MS);
    this.give(session);
  }

  private give(session: Session): void {
    const recorded = session.take();
    this.result = { recorded, events: eventsOf(recorded) };
    this.onTraceReady?.(this);
  }

  /** Ends the profile after a synchronous function. @internal */
  end(): void {
    this.stopAll();
    for (const session of this.pending.splice(0)) {
      if (!session.isDone) this.runtime.world.checkWait(OP);
      this.collect(session);
    }
  }

  /** Ends the profile after an asynchronous function. @internal */
  async endAsync(): Promise<void> {
    this.stopAll();
    const { turns } = this.runtime;
    for (const session of this.pending.splice(0)) {
      const done = allRun(session);
      await (turns === null ? done : turns.wait(OP, done));
      this.give(session);
    }
  }

  /** Ends the profile of a function that threw. @internal */
  abandon(): void {
    this.isOpen = false;
    this.drop();
    this.action = 'none';
  }

  private stopAll(): void {
    runDeferred();
    const { session, action } = this;
    if (this.steps > 0) this.closeStep();
    this.openStep = null;
    this.isOpen = false;
    this.action = 'none';
    session?.stop();
    this.session = null;
    if (session === null) return;
    if (action === 'warmup') session.take();
    else this.pending.push(session);
  }

  private ended(op: string): Result {
    if (this.result !== null) return this.result;
    throw new ArgumentError(
      `${op}: expected a profile that has ended, got one without a trace yet: use what ` +
        'profiler.profile returns, or onTraceReady. A schedule must reach an active step',
      { op },
    );
  }

  /**
   * What the host ran, in the order of the starts: ops, nodes of backward, modules, regions.
   *
   * @throws ArgumentError before the end
   * @see PyTorch `torch.profiler.profile.events`
   */
  events(): readonly ProfilerEvent[] {
    return this.ended('Profile.events').events.host;
  }

  /** What streams and GPUs ran, in the order of the starts. @throws ArgumentError before the end */
  kernels(): readonly KernelEvent[] {
    return this.ended('Profile.kernels').events.kernels;
  }

  /**
   * Memory that was allocated and freed, with `profileMemory`. @throws ArgumentError before the end
   */
  memory(): readonly MemoryEvent[] {
    return this.ended('Profile.memory').events.memory;
  }

  /**
   * Sums by op, by module path or by kernel.
   *
   * @throws ArgumentError before the end, and for groups that were not recorded
   * @see PyTorch `torch.profiler.profile.key_averages`
   * @example
   * const prof = profiler.profile({}, () => model(x));
   * console.log(prof.keyAverages({ groupByKernel: true }).table({ rowLimit: 10 }));
   */
  keyAverages(options: KeyAveragesOptions = {}): KeyAverages {
    const { events, recorded } = this.ended('Profile.keyAverages');
    return keyAverages(events, options, recorded.settings);
  }

  /** The trace that {@link exportChromeTrace} writes. @throws ArgumentError before the end */
  chromeTrace(): ChromeTrace {
    const { events, recorded } = this.ended('Profile.chromeTrace');
    return chromeTrace(events, recorded);
  }

  /**
   * Writes a trace that https://ui.perfetto.dev and chrome://tracing open, compressed if the name
   * ends with `.gz`. Each rank writes a file of its own; the events of several files fit together.
   *
   * @throws ArgumentError before the end, and for a folder that does not exist; the errors of the
   * system
   * @see PyTorch `torch.profiler.profile.export_chrome_trace`
   */
  exportChromeTrace(file: string): void {
    const op = 'Profile.exportChromeTrace';
    const { events, recorded } = this.ended(op);
    if (typeof file !== 'string' || file === '')
      throw unexpected(op, 'file', 'the name of a file', file);
    writeTrace(op, file, chromeTrace(events, recorded));
  }

  /** Who timed GPUs; null if none was recorded. @throws ArgumentError before the end */
  get deviceTimer(): DeviceTimer | null {
    return this.ended('Profile.deviceTimer').recorded.timer;
  }

  /**
   * Why CUPTI did not time GPUs; '' if it did, or was not asked. @throws ArgumentError before the
   * end
   */
  get whyNoCupti(): string {
    return this.ended('Profile.whyNoCupti').recorded.whyNoCupti;
  }
}

const SLEEP = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));

async function allRun(session: Session): Promise<void> {
  while (!session.isDone) await new Promise((resolve) => setTimeout(resolve, POLL_MS));
}

/**
 * Runs `fn` and records it: the ops, the modules and the regions that the host runs, the kernels,
 * copies and collectives of streams and GPUs, and memory. Ends when `fn` returns, or when its
 * promise settles, and waits for the kernels. While no profile is recorded, none of this costs
 * anything.
 *
 * Each of several ranks of a process may profile itself, or the program around them profiles all.
 *
 * @returns the profile, or a promise of it if `fn` returns a promise
 * @throws ArgumentError for unknown activities, and if a profile is recorded already; DeviceError
 * for `cuda` without a GPU; what `fn` throws
 * @see PyTorch `torch.profiler.profile`
 * @example
 * const prof = profiler.profile({ activities: ['cpu'] }, () => model(x).sum().backward());
 * console.log(prof.keyAverages().table({ sortBy: 'cpuTimeTotal', rowLimit: 10 }));
 * prof.exportChromeTrace('trace.json');
 */
export function profile(
  options: ProfileOptions,
  fn: (profile: Profile) => Promise<unknown>,
): Promise<Profile>;
export function profile(options: ProfileOptions, fn: (profile: Profile) => unknown): Profile;
export function profile(
  options: ProfileOptions,
  fn: (profile: Profile) => unknown,
): Profile | Promise<Profile> {
  reportUse(OP);
  const recording = new Profile(options);
  checkFunction(OP, 'fn', fn);
  recording.start();
  let result: unknown;
  try {
    result = fn(recording);
    if (!(result instanceof Promise)) {
      recording.end();
      return recording;
    }
  } catch (error) {
    recording.abandon();
    throw error;
  }
  return finished(recording, result);
}

async function finished(recording: Profile, result: Promise<unknown>): Promise<Profile> {
  try {
    await result;
    await recording.endAsync();
  } catch (error) {
    recording.abandon();
    throw error;
  }
  return recording;
}

/** @throws ArgumentError if this rank, or one of this process, is recorded */
function checkNotNested(): void {
  const runtime = currentRuntime();
  if (!isRecorded(runtime) && !(runtime.id === 0 && isRecording())) return;
  throw new ArgumentError(
    `${OP}: expected no profile to be recorded, got one inside of another: end the outer one ` +
      'first. recordFunction(name, fn) names a part of a profile',
    { op: OP },
  );
}
