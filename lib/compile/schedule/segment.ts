/**
 * A segment of a plan: calls whose commands were encoded once. A run patches what differs from run
 * to run, crosses into the addon once, and makes tensors of the results that others read.
 */
import { noGrad } from '../../autograd/grad-mode.js';
import { runDeferred } from '../../core/deferred.js';
import type { Device } from '../../core/device.js';
import { belowEntry, type Layer } from '../../core/dispatch.js';
import type { DType } from '../../core/dtype.js';
import { hooks, layers } from '../../core/hooks.js';
import { lateResultOf, lateResults } from '../../core/late-results.js';
import type { DrawParams } from '../../core/random.js';
import { innermostScope } from '../../core/scope-stack.js';
import { type Shape, sameShape } from '../../core/shape.js';
import { Storage } from '../../core/storage.js';
import { Tensor } from '../../core/tensor.js';
import { mayShareMemory } from '../../eager/aliasing.js';
import { history, recordStorages } from '../../eager/allocation-history.js';
import { addPressure } from '../../eager/gc-policy.js';
import { freeGarbage, streamOf, translate, writer } from '../../eager/submit.js';
import type { Token } from '../../native/addon.js';
import type { NativeError } from '../../native/guard.js';
import type { RunValue } from '../graph/effects.js';
import { runStep, type Step } from '../graph/graph-module.js';
import type { RecordedCommand } from './command-recorder.js';

/** A tensor that exists before the segment, and the layout that the commands were encoded for. */
export interface Given {
  readonly value: number;
  shape: Shape;
  strides: Shape;
  readonly dtype: DType;
  readonly device: Device;
  /** Whether a view of it has a fixed offset in its storage. */
  fixed: boolean;
  /** Whether a command reads or writes it. */
  used: boolean;
  /** The command behind which its memory is freed; -1 if the segment leaves that to others. */
  freedAfter: number;
}

/** New memory that outlives the segment. */
export interface SegmentOutput {
  readonly bytes: number;
  /** The op that writes it, for memory snapshots. */
  readonly op: string;
}

/** A tensor that the segment makes. */
export interface SegmentResult {
  /** The values that are this tensor. */
  readonly values: readonly number[];
  /** Its memory: an output, or that of a given value. */
  readonly output: number;
  readonly given: number;
  readonly shape: Shape;
  readonly strides: Shape;
  readonly offset: number;
  readonly dtype: DType;
}

/** What a segment consists of. */
export interface SegmentParts {
  /** Effects that run before the commands, such as draws. */
  readonly prelude: readonly Step[];
  /** The same calls, to be run one by one where the commands do not fit. */
  readonly steps: readonly Step[];
  readonly device: Device;
  readonly commands: readonly RecordedCommand[];
  readonly words: Float64Array;
  readonly arenaBytes: number;
  /** The used ones first. */
  readonly given: readonly Given[];
  /** Values with the random state of draws. */
  readonly draws: readonly number[];
  readonly outputs: readonly SegmentOutput[];
  readonly results: readonly SegmentResult[];
  /** Values that are the tensor of an earlier value, which calls have written into. */
  readonly same: readonly (readonly [value: number, earlier: number])[];
  /** Given values that must not share memory: one is written where the other is read. */
  readonly apart: readonly (readonly [number, number])[];
  /** Values whose version each run raises, once for each call that writes into them. */
  readonly written: readonly number[];
  /** Numbers that kernels get beside the parameters of calls, as they were. */
  readonly computed: ReadonlyMap<() => number, number>;
}

/** The tokens of the outputs. */
type Made = Exclude<ReturnType<typeof writer.addon.runPlan>, false>;

const words = new Float64Array(writer.addon.words);
const NOTHING_HAS_RUN = -1;

/** Where calls enter that run one by one: they are counted in versions, and not recorded. */
const entry: Layer = belowEntry;

/** Runs calls and effects one by one. */
export function runOneByOne(steps: readonly Step[], values: RunValue[]): void {
  noGrad(() => {
    for (const step of steps) runStep(step, values, entry);
  });
}

export class Segment {
  readonly parts: SegmentParts;
  /** The number of the native plan; 0 if there is none and the calls run one by one. */
  private plan = 0;
  /** Whether the calls run as commands of a native plan. */
  get isNative(): boolean {
    return this.isEmpty || this.plan !== 0;
  }

  /** The native plan lives as long as this. */
  readonly token: Token | null = null;
  private readonly numUsed: number;
  /** Whether there is nothing to run: effects and views alone. */
  private readonly isEmpty: boolean;

  constructor(parts: SegmentParts) {
    this.parts = parts;
    this.numUsed = parts.given.filter(({ used }) => used).length;
    this.isEmpty = parts.commands.length === 0 && parts.outputs.length === 0;
    if (this.isEmpty || 2 * this.numUsed + 3 * parts.draws.length > words.length) return;
    streamOf(parts.device); // opens the device
    try {
      this.token = writer.addon.createPlan(parts.words, parts.device.code);
    } catch {
      return; // the call that does not fit its kernel says so when it runs
    }
    this.plan = words[0] as number;
  }

  run(values: RunValue[]): void {
    const { prelude, given } = this.parts;
    runDeferred(null);
    if (lateResults.exist)
      for (const { value } of given) lateResultOf(values[value] as Tensor)?.wait();
    for (let i = 0; i < prelude.length; i++) runStep(prelude[i] as Step, values, entry);
    if (!this.fits(values) || !this.runCommands(values)) runOneByOne(this.parts.steps, values);
  }

  /** Whether the commands do what the calls would do now. */
  private fits(values: readonly RunValue[]): boolean {
    if (!this.isNative || !layers.backend.sendsCommands || layers.hasMode) return false;
    const { given, apart } = this.parts;
    for (let i = 0; i < given.length; i++) {
      const expected = given[i] as Given;
      const t = values[expected.value] as Tensor;
      if (t.storage === null || t.storage.handle <= 0 || t.disposed || !fitsLayout(t, expected))
        return false;
      if (expected.freedAfter >= 0 && !mayFree(t.storage)) return false;
    }
    for (let i = 0; i < apart.length; i++) {
      const [a, b] = apart[i] as readonly [number, number];
      if (mayShareMemory((values[a] as Tensor).storage, (values[b] as Tensor).storage))
        return false;
    }
    return true;
  }

  /** False, and nothing has run, if the addon finds that the calls must run one by one. */
  private runCommands(values: RunValue[]): boolean {
    const { device, outputs } = this.parts;
    if (this.isEmpty) {
      this.finish(values, []);
      return true;
    }
    const scope = innermostScope();
    const made = this.runPlan(values, scope === null);
    if (made === false) return false;
    this.markFreed(values, this.parts.commands.length);
    const storages = new Array<Storage>(outputs.length);
    for (let i = 0; i < storages.length; i++) {
      const storage = new Storage(device, (outputs[i] as SegmentOutput).bytes);
      storage.handle = words[i] as number;
      if (scope !== null) {
        storage.scope = scope;
        scope.storages.push(storage);
      } else storage.token = (storages.length === 1 ? made : (made as Token[])[i]) as Token;
      storages[i] = storage;
    }
    this.finish(values, storages);
    return true;
  }

  /**
   * Crosses into the addon, and again where memory ran out: from the start if nothing has run, else
   * from where the run stopped.
   */
  private runPlan(values: readonly RunValue[], withTokens: boolean): Made | false {
    const stream = streamOf(this.parts.device);
    let hasCollected = false;
    for (let goesOn = false; ; ) {
      try {
        if (!goesOn) this.patch(values);
        return this.cross(stream, withTokens, goesOn);
      } catch (error) {
        if (!isOutOfMemory(error)) throw this.explain(error, values);
        const hasRun = words[0] !== NOTHING_HAS_RUN;
        goesOn = words[1] === 1;
        // One by one, so that the error names the op that does not fit, or that all fit.
        if (!hasRun && hasCollected) return false;
        if (hasRun && !goesOn) throw this.explain(error, values);
        freeGarbage();
        hasCollected = true;
      }
    }
  }

  private cross(stream: number, withTokens: boolean, goesOn: boolean): Made | false {
    const { profiler } = hooks;
    const run = (): Made | false => writer.addon.runPlan(this.plan, stream, withTokens, goesOn);
    return profiler === null ? run() : profiler.plan(this.parts.commands, run);
  }

  /** Marks the donated memory that was freed before the command of this number. */
  private markFreed(values: readonly RunValue[], end: number): void {
    const { given } = this.parts;
    for (let i = 0; i < this.numUsed; i++) {
      const { freedAfter, value } = given[i] as Given;
      if (freedAfter >= 0 && freedAfter < end)
        (values[value] as Tensor).storage?.markFreed('backward used it up');
    }
  }

  /** Writes what differs from run to run: memory of given tensors, random state. */
  private patch(values: readonly RunValue[]): void {
    const { given, draws } = this.parts;
    let at = 0;
    for (let i = 0; i < this.numUsed; i++) {
      const t = values[(given[i] as Given).value] as Tensor;
      words[at++] = (t.storage as Storage).handle;
      words[at++] = t.storageOffset * t.dtype.itemsize;
    }
    for (let i = 0; i < draws.length; i++) {
      const { seedLow, seedHigh, offset } = values[draws[i] as number] as DrawParams;
      words[at++] = seedLow;
      words[at++] = seedHigh;
      words[at++] = offset;
    }
  }

  /** Makes the tensors of the results. */
  private finish(values: RunValue[], storages: readonly Storage[]): void {
    const { results, same, written, outputs, device } = this.parts;
    const owners = new Array<Tensor>(storages.length);
    for (let i = 0; i < results.length; i++) {
      const {
        output,
        given,
        shape,
        strides,
        offset,
        dtype,
        values: at,
      } = results[i] as SegmentResult;
      const base = output < 0 ? (values[given] as Tensor) : null;
      const t = new Tensor(
        shape,
        strides,
        base === null ? offset : base.storageOffset + offset,
        dtype,
        base === null ? device : base.device,
        base === null ? (storages[output] as Storage) : base.storage,
      );
      // Views share the version of what they show.
      const shown = base ?? owners[output];
      if (shown !== undefined) {
        t.versionCounter = shown.sharedVersion();
        t.nodeVersion = t.versionCounter.value;
      } else owners[output] = t;
      for (let k = 0; k < at.length; k++) values[at[k] as number] = t;
    }
    for (let i = 0; i < same.length; i++) {
      const [value, earlier] = same[i] as readonly [number, number];
      values[value] = values[earlier] as RunValue;
    }
    for (let i = 0; i < written.length; i++) (values[written[i] as number] as Tensor).bumpVersion();
    if (history.isRecorded)
      for (const [i, t] of owners.entries()) recordStorages((outputs[i] as SegmentOutput).op, [t]);
    if (owners.length > 0) addPressure(owners);
  }

  /** The error as that of the command which failed. */
  private explain(error: unknown, values: readonly RunValue[]): unknown {
    const at = words[0] as number;
    this.markFreed(values, at);
    const failed = this.parts.commands[at];
    return failed === undefined
      ? translate(error, 'a compiled graph', [], this.parts.device)
      : translate(error, failed.name, failed.inputs, this.parts.device);
  }
}

const isOutOfMemory = (error: unknown): boolean =>
  (error as Partial<NativeError>).code === 'SW_OUT_OF_MEMORY';

/** Whether the memory may be freed as soon as commands need it no more. */
const mayFree = ({ owner, pendingReads }: Storage): boolean =>
  owner === null && pendingReads === null;

/** Compares identities first; keeps arrays of equal numbers for the next comparison. */
function fitsLayout(t: Tensor, expected: Given): boolean {
  if (t.dtype !== expected.dtype || t.device !== expected.device || t.sharding !== null)
    return false;
  if (t.sizes !== expected.shape) {
    if (!sameShape(t.sizes, expected.shape)) return false;
    expected.shape = t.sizes;
  }
  if (t.strides !== expected.strides) {
    if (!sameShape(t.strides, expected.strides)) return false;
    expected.strides = t.strides;
  }
  return !expected.fixed || t.storageOffset === 0;
}
