/**
 * Writes commands as words into the buffer shared with the addon. The layout is described in
 * native/README.md.
 */
import { CountingWriter } from '../core/command.js';
import { META_ADVICE } from '../core/device.js';
import type { DType } from '../core/dtype.js';
import { DeviceError, ShardwiseError } from '../core/errors.js';
import { currentScope } from '../core/scope-stack.js';
import type { Shape } from '../core/shape.js';
import { FAKE_HANDLE, freedError, type Storage } from '../core/storage.js';
import type { Tensor } from '../core/tensor.js';
import type { Addon, Token } from './addon.js';

const HEADER_WORDS = 7;
const IMMEDIATE = -1;
const ALLOCATE = -2;
const INDEX_VIEW = -3;
const MAKE_TOKENS = 1;
const MAY_SHARE = 2;
/** native/addon/tokens.h */
const MOST_SHARED_BYTES = 512;

/** The one encoder of a process; commands are written and submitted without anything in between. */
export class WordWriter extends CountingWriter {
  private readonly addon: Addon;
  private readonly words: Float64Array;
  private at = HEADER_WORDS;
  private op = '';
  /**
   * Tensors whose storages the command allocates, and the words where their handles come back;
   * counted, so that no array is resized.
   */
  private readonly pending: (Tensor | null)[] = [];
  private readonly slots: number[] = [];
  private allocations = 0;
  private lastToken: Token | null = null;

  constructor(addon: Addon) {
    super();
    this.addon = addon;
    this.words = new Float64Array(addon.words);
  }

  begin(op: string): void {
    this.op = op;
    this.at = HEADER_WORDS;
    this.startCounts();
    this.allocations = 0;
  }

  flat(t: Tensor, count: number): void {
    if (t.storage === null) {
      this.immediate(t.scalarValue, t.dtype);
      return;
    }
    this.inputs++;
    this.memory(t, t.storage);
    this.run(count);
  }

  outputView(t: Tensor, sizes: Shape, strides: Shape, offset = 0): void {
    this.result(t, offset);
    this.layout(sizes, strides);
  }

  flatOutput(t: Tensor, count: number): void {
    this.result(t);
    this.run(count);
  }

  /** Output memory: what the tensor has, or an allocation that the command makes. */
  private result(t: Tensor, offset = 0): void {
    this.outputs++;
    const storage = t.storage as Storage;
    if (storage.handle !== 0 || storage.freedBy !== null) {
      this.memory(t, storage, offset);
      return;
    }
    this.slots[this.allocations] = this.at;
    this.pending[this.allocations++] = t;
    const words = this.words;
    words[this.at++] = ALLOCATE;
    words[this.at++] = storage.nbytes;
    words[this.at++] = t.dtype.code;
  }

  absentOutput(): void {
    this.outputs++;
    this.number(0, 0);
  }

  immediate(value: number, dtype: DType): void {
    this.inputs++;
    this.number(value, dtype.code);
  }

  indexView(start: number, sizes: Shape, strides: Shape): void {
    this.inputs++;
    const words = this.words;
    words[this.at++] = INDEX_VIEW;
    words[this.at++] = start;
    words[this.at++] = 4; // int64
    this.layout(sizes, strides);
  }

  param(value: number): void {
    this.params++;
    this.words[this.at++] = value;
  }

  /**
   * Sends the command, and gives each newly allocated storage its handle and its owner: the open
   * scope, or a token.
   */
  submit(kernel: number, stream: number): void {
    const words = this.words;
    if (this.at > words.length) {
      throw new ShardwiseError(
        'ERR_OP',
        `${this.op}: the command has ${this.at} words, at most ${words.length} fit`,
      );
    }
    const scope = currentScope;
    words[0] = kernel;
    words[1] = stream;
    words[2] = this.inputs;
    words[3] = this.outputs;
    words[4] = this.params;
    words[5] = scope !== null ? 0 : this.lastToken === null ? MAKE_TOKENS : MAKE_TOKENS | MAY_SHARE;
    words[6] = this.estimate;
    const result = this.addon.submit(this.at);
    const { pending, slots, allocations } = this;
    for (let i = 0; i < allocations; i++) {
      const t = pending[i] as Tensor;
      const storage = t.storage as Storage;
      pending[i] = null;
      storage.handle = words[slots[i] as number] as number;
      if (scope !== null) {
        storage.scope = scope;
        scope.storages.push(storage);
      } else
        storage.giveToken(
          t,
          allocations === 1
            ? this.tokenOf(result as Token | undefined, storage.nbytes)
            : ((result as Token[])[i] as Token),
        );
    }
  }

  /** Small outputs may share the token that came last, which is held for that, with its memory. */
  private tokenOf(result: Token | undefined, bytes: number): Token {
    if (result === undefined) return this.lastToken as Token;
    this.lastToken = bytes <= MOST_SHARED_BYTES ? result : null;
    return result;
  }

  /** Drops the token of the last command, so that garbage collection can free it. */
  dropToken(): void {
    this.lastToken = null;
  }

  protected memory(t: Tensor, storage: Storage, offset = 0): void {
    const handle = storage.handle;
    if (handle <= 0 || t.disposed) this.refuse(storage);
    const words = this.words;
    words[this.at++] = handle;
    words[this.at++] = t.storageOffset + offset;
    words[this.at++] = t.dtype.code;
  }

  /** The layout of one run of memory. */
  private run(count: number): void {
    const words = this.words;
    words[this.at++] = 1;
    words[this.at++] = count;
    words[this.at++] = 1;
  }

  private number(value: number, dtype: number): void {
    const words = this.words;
    words[this.at++] = IMMEDIATE;
    words[this.at++] = value;
    words[this.at++] = dtype;
  }

  protected layout(sizes: Shape, strides: Shape): void {
    const words = this.words;
    const ndim = sizes.length;
    words[this.at++] = ndim;
    for (let i = 0; i < ndim; i++) words[this.at++] = sizes[i] as number;
    for (let i = 0; i < ndim; i++) words[this.at++] = strides[i] as number;
  }

  private refuse(storage: Storage): never {
    if (storage.device.type === 'meta')
      throw new DeviceError(
        `${this.op}: expected tensors with values, got one on meta. ${META_ADVICE}`,
        { op: this.op, device: 'meta' },
      );
    if (storage.handle === FAKE_HANDLE) {
      throw new ShardwiseError(
        'ERR_FAKE_TENSOR',
        `${this.op}: a fake tensor (it has a shape but no values) was used outside the ` +
          'FakeTensorMode or trace that made it',
      );
    }
    throw freedError(storage, this.op);
  }
}
