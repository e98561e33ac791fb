/** `Checkpointer`: saves a run every so many steps and at a signal, and resumes it. */
import {
  checkFlag,
  checkFunction,
  checkNumber,
  optionsOf,
  unexpected,
} from '../../../core/options.js';
import { CheckpointError, type CheckpointState } from '../../../index.js';
import { distributedCheckpoint } from '../distributed-checkpoint.js';
import { Ranks } from '../ranks.js';
import type { PendingSave } from '../save/pending-saves.js';
import { checkFolder } from '../save/save.js';
import { commandLine, ownStart } from './command.js';
import { endBy, type StopSignal, signalNumber, signalOf, watchSignals } from './signals.js';
import {
  completeSteps,
  removeOldSteps,
  type StepFolder,
  stepFolder,
  stepsOf,
} from './step-folders.js';

const OP = 'Checkpointer';

/** Options of {@link Checkpointer}. */
export interface CheckpointerOptions {
  /** Where the checkpoints are: a folder `step-<n>` for each. */
  folder: string;
  /** Saves at each step that is a multiple of this number. */
  every: number;
  /** How many checkpoints stay. 1 by default; while one is written, there is one more. */
  keep?: number;
  /** Whether training goes on while files are written. True by default. */
  async?: boolean;
  /** Whether SIGINT and SIGTERM save and end the program. True by default. */
  signals?: boolean;
  /** What the command that goes on gets in addition, such as `['--resume']`, unless it has it. */
  resumeArguments?: readonly string[];
  /** Shows a line about a signal to the user, on the first rank. `console.error` by default. */
  report?: (message: string) => void;
}

/**
 * Saves a run every `every` steps, keeps the last `keep` checkpoints, and resumes from the last
 * one. On SIGINT or SIGTERM, which may reach the ranks at different times, all ranks save at the
 * same step and end; the command that goes on is printed. A second signal ends at once.
 *
 * @throws ArgumentError for bad options
 * @example
 * const state = { model, optimizer };
 * await using checkpointer = new Checkpointer({ folder: 'run', every: 500, keep: 2 });
 * const first = (await checkpointer.resume(state)) ?? 0;
 * for (let step = first + 1; step <= 1000; step++) {
 *   await checkpointer.step(step, state);
 * }
 */
export class Checkpointer {
  /** Where the checkpoints are. */
  readonly folder: string;
  private readonly every: number;
  private readonly keep: number;
  private readonly isAsync: boolean;
  private readonly resumeArguments: readonly string[];
  private readonly report: (message: string) => void;
  private readonly ranks = new Ranks('signals');
  private readonly unwatch: () => void;
  private pending: { readonly folder: string; readonly save: PendingSave } | null = null;
  /** Whether the program waits for a save, after which there may be no step. */
  private isSaving = false;
  /** The folder of the last complete save of this run, or of the one that was resumed. */
  private saved: string | null = null;
  /** Steps that {@link resume} could not load. */
  private readonly damaged = new Set<number>();
  /** Whether the folder is known to hold no checkpoints of later steps. */
  private isChecked = false;
  /** The signals of all ranks at the step before. */
  private signals: (() => Promise<number>) | null = null;

  constructor(options: CheckpointerOptions) {
    const given = optionsOf(OP, options, 'folder every keep async signals resumeArguments report');
    const { folder, every, keep = 1, async: isAsync = true, signals = true } = given;
    const { resumeArguments = [], report = (message) => console.error(message) } = given;
    if (!Array.isArray(resumeArguments) || resumeArguments.some((a) => typeof a !== 'string'))
      throw unexpected(OP, 'resumeArguments', 'a list of strings', resumeArguments);
    checkFolder(OP, folder);
    checkNumber(OP, 'every', every, { from: 1, whole: true });
    checkNumber(OP, 'keep', keep, { from: 1, whole: true });
    checkFlag(OP, 'async', isAsync);
    checkFlag(OP, 'signals', signals);
    this.folder = folder;
    this.every = every;
    this.keep = keep;
    this.isAsync = isAsync;
    checkFunction(OP, 'report', report);
    this.resumeArguments = resumeArguments;
    this.report = report;
    this.unwatch = signals ? watchSignals((signal) => this.reportSignal(signal)) : () => {};
  }

  /**
   * Call it on all ranks at the end of each step. Saves if the step is a multiple of `every`, or if
   * a rank has a signal to stop: then it also ends the process.
   *
   * @param step - a whole number from 0
   * @throws CheckpointError if a rank cannot write, also in the save before; CollectiveError if one
   * has died, or does not come within `timeoutMs` of the process group; ArgumentError
   */
  async step(step: number, state: CheckpointState): Promise<void> {
    checkNumber(`${OP}.step`, 'step', step, { from: 0, whole: true });
    const signal = await this.agreedSignal();
    if (signal === null && step % this.every !== 0) return;
    await this.checkFolder(step);
    if (signal === null && this.isAsync) {
      await this.finish();
      const folder = stepFolder(this.folder, step);
      const save = await distributedCheckpoint.save(folder, state, { async: true });
      this.pending = { folder, save };
      return;
    }
    const folder = await this.saveNow(step, state);
    if (signal !== null) await this.end(signal, folder);
  }

  /**
   * Saves now, whatever `every` is: for the last step of a run. Call it on all ranks. A signal that
   * comes during it ends the process at the next step, or when this is closed.
   *
   * @returns the folder of the checkpoint
   * @throws CheckpointError, CollectiveError, ArgumentError as {@link step}
   */
  async save(step: number, state: CheckpointState): Promise<string> {
    checkNumber(`${OP}.save`, 'step', step, { from: 0, whole: true });
    this.isSaving = true;
    try {
      return await this.saveNow(step, state);
    } finally {
      this.isSaving = false;
    }
  }

  private async saveNow(step: number, state: CheckpointState): Promise<string> {
    await this.checkFolder(step);
    await this.finish();
    const folder = stepFolder(this.folder, step);
    await distributedCheckpoint.save(folder, state);
    this.saved = folder;
    await this.removeOld();
    return folder;
  }

  /**
   * A save would be older than the checkpoints of another run, and be removed; or it would replace
   * what a link names. @throws CheckpointError
   */
  private async checkFolder(step: number): Promise<void> {
    const steps = await this.ranks.fromFirst(OP, () => stepsOf(this.folder));
    const folderOf = (each: StepFolder): string => stepFolder(this.folder, each.step);
    const later = steps.find(
      (each) => each.isComplete && each.step > step && !this.damaged.has(each.step),
    );
    if (later !== undefined && !this.isChecked)
      throw new CheckpointError(
        `${OP}: expected a folder without checkpoints of later steps than ${step}, got ` +
          `${folderOf(later)}. Call resume before the first step to go on with that run, or give ` +
          'another folder.',
        { folder: this.folder, step, later: later.step },
      );
    this.isChecked = true;
    const link = steps.find((each) => each.isLink && each.step === step);
    if (link !== undefined)
      throw new CheckpointError(
        `${OP}: ${folderOf(link)} is a link: this save would replace the checkpoint that it ` +
          'names. Remove the link, or give another folder.',
        { folder: this.folder, step },
      );
  }

  /**
   * Loads the last checkpoint into the state; one that is damaged is reported, and the one before
   * is loaded. Resolves to its step, or null without a checkpoint.
   *
   * @throws CheckpointError if no checkpoint can be read, or it does not fit the state
   */
  async resume(state: CheckpointState): Promise<number | null> {
    const op = `${OP}.resume`;
    const steps = await this.ranks.fromFirst(op, () => completeSteps(this.folder));
    let first: unknown = null;
    for (const step of steps) {
      try {
        await distributedCheckpoint.load(stepFolder(this.folder, step), state);
        this.saved = stepFolder(this.folder, step);
        return step;
      } catch (error) {
        if (!(error instanceof CheckpointError) || 'missing' in error.details) throw error;
        first ??= error;
        this.damaged.add(step);
        if (this.ranks.rank === 0)
          console.warn(
            `${op}: step ${step} cannot be loaded, trying the one before: ${error.message}`,
          );
      }
    }
    if (first !== null) throw first;
    return null;
  }

  /**
   * Waits for the save in the background, and stops watching signals. A signal that came after the
   * last step, or comes during the wait, ends the process then, and the command that goes on is
   * printed.
   *
   * @throws CheckpointError, CollectiveError as the save in the background does
   */
  async close(): Promise<void> {
    this.isSaving = true;
    const failure = await this.finish().catch((error: Error) => error);
    const signal = signalOf(signalNumber());
    this.unwatch();
    if (signal === null) {
      if (failure instanceof Error) throw failure;
      return;
    }
    if (failure instanceof Error)
      this.report(`${signal}: the last save failed: ${failure.message}`);
    if (this.saved !== null) this.reportEnd(signal, this.saved);
    endBy(signal);
  }

  /**
   * The command that goes on with the run, as it was typed, with `resumeArguments`. Options of the
   * program get other values: `resumeCommand({ '--steps': '2000' })`.
   */
  resumeCommand(options: Readonly<Record<string, string>> = {}): string {
    return commandLine(ownStart(), this.resumeArguments, options);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** The signal that a rank had at the step before: so all ranks stop at the same step. */
  private async agreedSignal(): Promise<StopSignal | null> {
    const before = this.signals;
    this.signals = this.ranks.startMaximum(signalNumber());
    return before === null ? null : signalOf(await before());
  }

  private async finish(): Promise<void> {
    const { pending } = this;
    if (pending === null) return;
    this.pending = null;
    await pending.save.wait();
    this.saved = pending.folder;
    await this.removeOld();
  }

  private async removeOld(): Promise<void> {
    if (this.ranks.rank === 0)
      await removeOldSteps(this.folder, this.keep, this.damaged).catch(() => {});
  }

  private reportSignal(signal: StopSignal): void {
    if (this.ranks.rank !== 0) return;
    const plan = this.isSaving
      ? 'ending when the save is complete'
      : 'saving at the end of the next step';
    this.report(`${signal}: ${plan}; a second ${signal} ends at once`);
  }

  private reportEnd(signal: StopSignal, folder: string): void {
    if (this.ranks.rank === 0)
      this.report(`${signal}: saved ${folder}. To go on: ${this.resumeCommand()}`);
  }

  private async end(signal: StopSignal, folder: string): Promise<void> {
    this.reportEnd(signal, folder);
    await this.ranks.arrive();
    endBy(signal);
    await new Promise(() => {}); // the signal ends the process
  }
}
