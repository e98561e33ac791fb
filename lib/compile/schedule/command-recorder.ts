/**
 * Records the commands of ops as the words of a native plan. Ops run by the eager backend's own
 * code on tensors without memory, so that a plan and eager mode send the same commands.
 */
import { CountingWriter } from '../../core/command.js';
import type { Device } from '../../core/device.js';
import type { DType } from '../../core/dtype.js';
import { CompileError } from '../../core/errors.js';
import type { AnyOp } from '../../core/op.js';
import type { Shape } from '../../core/shape.js';
import type { Storage } from '../../core/storage.js';
import type { Tensor } from '../../core/tensor.js';
import { type CommandSink, recordCommands, writeOperands } from '../../eager/eager-backend.js';
import { type FusedProgram, fusedPointwiseOp } from '../../ops/fused-pointwise.js';

const IMMEDIATE = -1;
const INDEX_VIEW = -3;
const INT64 = 4;
const DRAW_PARAMS = ['seedLow', 'seedHigh', 'offset'];

/** A recorded command, for errors and profiles. */
export interface RecordedCommand {
  readonly op: AnyOp;
  /** The op in errors; of a fused call, with those that it computes. */
  readonly name: string;
  readonly inputs: readonly Tensor[];
  /** The path of the module that its node comes from. */
  readonly path: string;
}

/** An operand in memory: where its words have the slot, and which command uses it. */
export interface OperandUse {
  readonly storage: Storage;
  readonly at: number;
  readonly command: number;
}

function nameOf(op: AnyOp, params: object): string {
  if (op !== fusedPointwiseOp) return op.name;
  const { program } = params as { program: FusedProgram };
  return `${op.name} of ${program.steps.map(({ name }) => name).join(', ')}`;
}

/** The commands of one device. */
export class CommandRecorder extends CountingWriter implements CommandSink {
  /** The words of all commands; operands have 0 for their slot. */
  readonly words: number[] = [];
  readonly commands: RecordedCommand[] = [];
  readonly uses: OperandUse[] = [];
  /** Numbers that kernels get beside the parameters of the call, as they were. */
  readonly computed = new Map<() => number, number>();
  device: Device | null = null;
  /** The first of three words with the random state of the op that runs; -1 if it draws none. */
  private drawWord = -1;
  private path = '';

  /** Whether the commands go to that device. */
  fits(device: Device): boolean {
    return this.device === null || this.device === device;
  }

  /**
   * Runs an op, and records its commands; `path` is that of the module which called it.
   *
   * @throws what the op throws, and CompileError for what is no command; nothing is then recorded
   */
  record<T>(drawWord: number, path: string, run: () => T): T {
    const { length } = this.words;
    const [commands, uses, device] = [this.commands.length, this.uses.length, this.device];
    this.drawWord = drawWord;
    this.path = path;
    try {
      return recordCommands(this, run);
    } catch (error) {
      this.words.length = length;
      this.commands.length = commands;
      this.uses.length = uses;
      this.device = device;
      throw error;
    }
  }

  command(
    op: AnyOp,
    kernel: number,
    device: Device,
    inputs: readonly Tensor[],
    outputs: readonly Tensor[],
    params: object,
  ): void {
    if (!this.fits(device)) this.refuse('a command for another device');
    this.device = device;
    const header = this.words.length;
    this.startCounts();
    this.words.push(kernel, 0, 0, 0, 0, 0);
    writeOperands(this, op, inputs, outputs, params);
    const draws = this.writeDraws(op);
    const counts = [this.inputs, this.outputs, this.params, draws, this.estimate];
    for (let i = 0; i < counts.length; i++) this.words[header + 1 + i] = counts[i] as number;
    for (const read of op.params.computed) this.computed.set(read, read());
    this.commands.push({ op, name: nameOf(op, params), inputs, path: this.path });
  }

  refuse(what: string): never {
    throw new CompileError(`a plan of commands cannot have ${what}`, { what });
  }

  /** Which parameters each run replaces by the random state; returns their number. */
  private writeDraws(op: AnyOp): number {
    if (this.drawWord < 0 || !op.params.kernelParams.includes('seedLow')) return 0;
    DRAW_PARAMS.forEach((name, i) => {
      const at = op.params.kernelParams.indexOf(name);
      if (at < 0) this.refuse(`a draw without ${name}`);
      this.words.push(at, this.drawWord + i);
    });
    return DRAW_PARAMS.length;
  }

  flat(t: Tensor, count: number): void {
    this.view(t, [count], [1]);
  }

  outputView(t: Tensor, sizes: Shape, strides: Shape, offset = 0): void {
    this.outputs++;
    this.memory(t, t.storage as Storage, offset);
    this.layout(sizes, strides);
  }

  flatOutput(t: Tensor, count: number): void {
    this.outputView(t, [count], [1]);
  }

  absentOutput(): void {
    this.outputs++;
    this.words.push(IMMEDIATE, 0, 0);
  }

  immediate(value: number, dtype: DType): void {
    this.inputs++;
    this.words.push(IMMEDIATE, value, dtype.code);
  }

  indexView(start: number, sizes: Shape, strides: Shape): void {
    this.inputs++;
    this.words.push(INDEX_VIEW, start, INT64);
    this.layout(sizes, strides);
  }

  param(value: number): void {
    this.params++;
    this.words.push(value);
  }

  /** Slot, first byte and dtype of a tensor. */
  protected memory(t: Tensor, storage: Storage, offset = 0): void {
    this.uses.push({ storage, at: this.words.length, command: this.commands.length });
    this.words.push(0, (t.storageOffset + offset) * t.dtype.itemsize, t.dtype.code);
  }

  protected layout(sizes: Shape, strides: Shape): void {
    this.words.push(sizes.length, ...sizes, ...strides);
  }
}
