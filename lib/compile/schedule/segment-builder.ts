/**
 * Collects neighbouring calls whose ops are commands of one device, and makes a segment of them.
 */
import { cpu } from '../../core/device.js';
import type { AnyOp } from '../../core/op.js';
import type { Storage } from '../../core/storage.js';
import { Tensor } from '../../core/tensor.js';
import { runEager } from '../../eager/eager-backend.js';
import { effectOf } from '../graph/effects.js';
import type { Step } from '../graph/graph-module.js';
import { standIn } from '../partition/memory.js';
import { CommandRecorder } from './command-recorder.js';
import { type Lifetime, planMemory } from './memory-plan.js';
import type { PlanValues } from './plan-values.js';
import { type Given, Segment, type SegmentOutput, type SegmentResult } from './segment.js';

/** Further than any offset of a view, and exact beside each. */
const SHIFT = 2 ** 40;

export class SegmentBuilder {
  readonly steps: Step[] = [];
  private readonly prelude: Step[] = [];
  private readonly recorder = new CommandRecorder();
  private readonly graph: PlanValues;
  /** The tensors without memory in the place of values. */
  private readonly standIns = new Map<number, Tensor>();
  private readonly given = new Map<Storage, Given>();
  private readonly draws: number[] = [];
  private readonly apart: (readonly [number, number])[] = [];
  private readonly written: Storage[] = [];
  /** The op that allocated each new storage. */
  private readonly makers = new Map<Storage, string>();

  constructor(graph: PlanValues) {
    this.graph = graph;
  }

  /** Whether effects wait to run before the commands. */
  get hasPrelude(): boolean {
    return this.prelude.length > 0;
  }

  /** Adds a call. False, and nothing is added, if it is no command of this segment. */
  addCall(step: Step): boolean {
    const { op, params, origin } = step.node;
    if (op === null || !isEncodable(op, step)) return false;
    const inputs = step.inputs.map((i) => this.operand(i));
    const updated = this.graph.updated.get(step);
    const target = updated ?? step.into;
    const into = target < 0 ? null : this.operand(target);
    if (!inputs.every((t) => t !== null) || (target >= 0 && into === null)) return false;
    let outputs: Tensor[];
    try {
      outputs =
        op.view !== null && into === null
          ? [this.view(op, inputs[0] as Tensor, params)]
          : this.recorder.record(this.drawWord(step), origin.path, () =>
              runEager(op, inputs, params, into),
            );
    } catch {
      return false;
    }
    if (!outputs.every((t) => this.accepts(t))) return false;
    for (const [i, t] of outputs.entries()) {
      this.standIns.set(step.at + i, t);
      const storage = t.storage as Storage;
      if (!this.given.has(storage) && !this.makers.has(storage)) this.makers.set(storage, op.name);
    }
    // Versions count what the graph says: that memory has become another value's.
    if (updated === undefined) this.addWrites(step, inputs, into);
    this.steps.push(step);
    return true;
  }

  /** Adds an effect that may run before the commands. False if it depends on their results. */
  addEffect(step: Step): boolean {
    const { effect } = step.node;
    const mayGoFirst = effect === 'draw' || (effect !== null && effectOf(effect).pure);
    if (!mayGoFirst || step.inputs.some((i) => this.makes(i))) return false;
    this.prelude.push(step);
    return true;
  }

  /** The segment; `end`: the number of steps up to its last one. */
  build(end: number): Segment {
    const escapes = (value: number): boolean => (this.graph.lastReads[value] as number) >= end;
    this.addFrees(end);
    const results: SegmentResult[] = [];
    const same: [number, number][] = [];
    const outputOf = new Map<Storage, number>();
    const byTensor = new Map<Tensor, number[]>();
    for (const [value, t] of this.standIns) {
      const earlier = this.given.get(t.storage as Storage);
      if (earlier?.value === value || !escapes(value)) continue;
      const whole = earlier === undefined ? undefined : this.standIns.get(earlier.value);
      if (earlier !== undefined && whole === t) same.push([value, earlier.value]);
      else byTensor.set(t, [...(byTensor.get(t) ?? []), value]);
    }
    for (const [t, values] of byTensor) {
      const storage = t.storage as Storage;
      const given = this.given.get(storage)?.value ?? -1;
      if (given < 0 && !outputOf.has(storage)) outputOf.set(storage, outputOf.size);
      const output = given < 0 ? (outputOf.get(storage) as number) : -1;
      const { sizes: shape, strides, storageOffset: offset, dtype } = t;
      results.push({ values, output, given, shape, strides, offset, dtype });
    }
    const given = this.usedGiven(results, same);
    const outputs = [...outputOf.keys()];
    const { words, arenaBytes } = this.encode(
      given.filter(({ used }) => used),
      outputOf,
    );
    const { prelude, steps, draws, apart, recorder } = this;
    return new Segment({
      prelude,
      steps,
      device: recorder.device ?? given[0]?.device ?? cpu,
      commands: recorder.commands,
      words,
      arenaBytes,
      given,
      draws,
      outputs: outputs.map(
        (s): SegmentOutput => ({ bytes: s.nbytes, op: this.makers.get(s) as string }),
      ),
      results,
      same,
      apart,
      written: this.written.flatMap((storage) => this.valueOn(storage, results, outputOf)),
      computed: recorder.computed,
    });
  }

  /** A value that shows the memory after a run; none where the memory is intermediate. */
  private valueOn(
    storage: Storage,
    results: readonly SegmentResult[],
    outputOf: ReadonlyMap<Storage, number>,
  ): number[] {
    const given = this.given.get(storage);
    if (given !== undefined) return [given.value];
    const output = outputOf.get(storage);
    return (
      results.find((each) => output !== undefined && each.output === output)?.values.slice(0, 1) ??
      []
    );
  }

  /** Whether the value is a result of this segment. */
  private makes(value: number): boolean {
    const t = this.standIns.get(value);
    return t !== undefined && this.given.get(t.storage as Storage)?.value !== value;
  }

  /** The tensor in the place of a value; null if the value is no plain tensor. */
  private operand(value: number): Tensor | null {
    const known = this.standIns.get(value);
    if (known !== undefined) return known;
    const initial = this.graph.initial[value];
    if (initial instanceof Tensor && initial.storage === null) return initial;
    const meta = this.graph.metas[value] ?? null;
    if (meta === null || meta.placements !== null || meta.device.type === 'meta') return null;
    // The memory of a given tensor may have any size.
    const t = standIn(meta, Number.POSITIVE_INFINITY);
    const { shape, strides, dtype, device } = meta;
    this.given.set(t.storage as Storage, {
      value,
      shape,
      strides,
      dtype,
      device,
      fixed: false,
      used: false,
      freedAfter: -1,
    });
    this.standIns.set(value, t);
    return t;
  }

  /** A view. Its offset follows that of the tensor, unless the op takes one in the storage. */
  private view(op: AnyOp, input: Tensor, params: object): Tensor {
    const rule = op.view as NonNullable<AnyOp['view']>;
    const { shape, strides, offset, dtype = input.dtype } = rule(input, params);
    input.storageOffset += SHIFT;
    const moved = rule(input, params).offset;
    input.storageOffset -= SHIFT;
    const given = this.given.get(input.storage as Storage);
    if (given !== undefined && moved !== offset + SHIFT) given.fixed = true;
    return new Tensor(shape, strides, offset, dtype, input.device, input.storage);
  }

  /** Whether a result has memory of this segment's device, or of a given tensor. */
  private accepts({ device, storage }: Tensor): boolean {
    if (storage === null || device.type === 'meta') return false;
    if (this.given.has(storage)) return true;
    if (!this.recorder.fits(device)) return false;
    this.recorder.device = device;
    return true;
  }

  /** The first of three words with the random state of the call; -1 if it draws none. */
  private drawWord({ draw, node }: Step): number {
    if (draw < 0) return -1;
    if (node.op?.params.kernelParams.includes('seedLow') !== true)
      this.recorder.refuse('a draw of an op without random state');
    let at = this.draws.indexOf(draw);
    if (at < 0) at = this.draws.push(draw) - 1;
    return 3 * at;
  }

  private addWrites(step: Step, inputs: readonly Tensor[], into: Tensor | null): void {
    const { op, params } = step.node;
    for (const i of op?.mutates?.(inputs, params) ?? [])
      this.written.push((inputs[i] as Tensor).storage as Storage);
    if (into === null) return;
    this.written.push(into.storage as Storage);
    const target = this.given.get(into.storage as Storage);
    if (target === undefined) return;
    for (const { storage } of inputs) {
      const read = storage === null ? undefined : this.given.get(storage);
      if (read !== undefined && read !== target) this.apart.push([target.value, read.value]);
    }
  }

  /** Which donated tensors the commands use last. */
  private addFrees(end: number): void {
    const { donated, lastUses } = this.graph;
    for (const { storage, command } of this.recorder.uses) {
      const given = this.given.get(storage);
      if (given === undefined || !donated.has(given.value)) continue;
      if ((lastUses[given.value] as number) < end) given.freedAfter = command;
    }
  }

  /** The given tensors that commands or results use; those of commands first. */
  private usedGiven(
    results: readonly SegmentResult[],
    same: readonly (readonly [number, number])[],
  ): Given[] {
    for (const { storage } of this.recorder.uses) {
      const given = this.given.get(storage);
      if (given !== undefined) given.used = true;
    }
    const seen = new Set([
      ...results.map(({ given }) => given),
      ...same.map(([, earlier]) => earlier),
    ]);
    const all = [...this.given.values()];
    return [...all.filter(({ used }) => used), ...all.filter((g) => !g.used && seen.has(g.value))];
  }

  /** The words of the native plan, with slots for all memory. */
  private encode(
    used: readonly Given[],
    outputOf: ReadonlyMap<Storage, number>,
  ): { words: Float64Array; arenaBytes: number } {
    const slots = new Map<Storage, number>();
    for (const [storage, given] of this.given)
      if (given.used) slots.set(storage, used.indexOf(given));
    for (const [storage, output] of outputOf) slots.set(storage, used.length + output);
    const arena = used.length + outputOf.size;
    const lifetimes = new Map<Storage, Lifetime>();
    for (const { storage, command } of this.recorder.uses) {
      if (slots.has(storage)) continue;
      const first = lifetimes.get(storage)?.first ?? command;
      lifetimes.set(storage, { bytes: storage.nbytes, first, last: command });
    }
    const { offsets, bytes: arenaBytes } = planMemory([...lifetimes.values()]);
    const offsetOf = new Map([...lifetimes.keys()].map((s, i) => [s, offsets[i] as number]));
    const header = [
      used.length,
      outputOf.size,
      arenaBytes,
      3 * this.draws.length,
      this.recorder.commands.length,
      ...[...outputOf.keys()].map(({ nbytes }) => nbytes),
      ...used.map(({ freedAfter }) => freedAfter),
    ];
    const words = new Float64Array(header.length + this.recorder.words.length);
    words.set(header);
    words.set(this.recorder.words, header.length);
    for (const { storage, at } of this.recorder.uses) {
      words[header.length + at] = slots.get(storage) ?? arena;
      (words[header.length + at + 1] as number) += offsetOf.get(storage) ?? 0;
    }
    return { words, arenaBytes };
  }
}

/** Whether an op may run as commands on tensors of one device. */
function isEncodable(op: AnyOp, { node }: Step): boolean {
  const runs = op.view !== null || op.kernel !== null || op.move !== null;
  return runs && op.compute === null && node.metas.every((meta) => meta.placements === null);
}
