/**
 * The `fake` engine: one rank of a world without peers. Nothing is sent and nothing waits. A
 * collective gives the result as if every rank had this rank's values, where sizes agree, but sums
 * nothing. It serves to compute shapes, plans and traffic of worlds of any size.
 *
 * @see PyTorch `torch.testing._internal.distributed.fake_pg`
 */
import type { CollectiveCall, CollectiveKind, CollectivePart } from '../../core/collective.js';
import type { Device } from '../../core/device.js';
import { layers } from '../../core/hooks.js';
import { FAKE_HANDLE } from '../../core/storage.js';
import type { Tensor } from '../../core/tensor.js';
import { newStream, streamOf } from '../../eager/submit.js';
import type { Engine, EngineFactory, GroupPlan } from './engine.js';

class FakeEngine implements Engine {
  readonly name = 'fake';
  readonly lane = 0;
  /** Its rank in the group, which wraps because tests use ranks beyond the size. */
  private readonly place: number;

  private readonly streams = new Map<Device, number>();

  constructor(place: number) {
    this.place = place;
  }

  /** A GPU's calls may run beside compute, as those of real ranks do. */
  streamFor(device: Device): number {
    if (device.type === 'cpu') return streamOf(device);
    const stream = this.streams.get(device) ?? newStream(device, 0);
    this.streams.set(device, stream);
    return stream;
  }

  run(_name: string, call: CollectiveCall): void {
    if (call.parts === undefined) this.runOne(call);
    else for (const part of call.parts) this.runPart(call.kind, part);
  }

  private runPart(kind: CollectiveKind, { input, output }: CollectivePart): void {
    if (!isComputed(input, output)) return;
    const [from, to] = [input.reshape([-1]), output.reshape([-1])];
    const each = Math.min(from.numel(), to.numel());
    if (each === 0) return;
    if (kind === 'allGather') fillRows(to.view([-1, each]), from, this.place);
    else to.copy_(from.narrow(0, this.place * each, each));
  }

  private runOne({ kind, input, output, counts, root }: CollectiveCall): void {
    if (!isComputed(input, output) || input === null || output === null) return;
    if (kind === 'allGather' || kind === 'gather')
      fillShards(output, input, counts as readonly number[], this.place);
    else if (kind === 'reduceScatter')
      copyShard(output, input, counts as readonly number[], this.place);
    else if (kind === 'scatter')
      copyShard(output, input, counts as readonly number[], root as number);
    else copyWhole(output, input);
  }

  finished(): Promise<void> {
    return Promise.resolve();
  }

  abort(): void {}
  leave(): void {}
}

const hasMemory = (t: Tensor | null): boolean => t !== null && t.storage?.handle !== FAKE_HANDLE;

/** Whether the operands have values. No op has recorded the use of fake tensors that come here. */
function isComputed(input: Tensor | null, output: Tensor | null): boolean {
  for (const t of [input, output]) layers.backend.observer?.use(t?.storage ?? null);
  return hasMemory(input) && hasMemory(output);
}

/** Copies values into all rows; those of a gather in place are in the row of this rank already. */
function fillRows(rows: Tensor, values: Tensor, place: number): void {
  const { sizes: shape, storage } = rows;
  if (values.storage !== storage || values.numel() === 0) {
    rows.copy_(values);
    return;
  }
  const after = (shape[0] as number) - place - 1;
  if (place > 0) rows.narrow(0, 0, place).copy_(values);
  if (after > 0) rows.narrow(0, place + 1, after).copy_(values);
}

/** Copies the input into every shard of the output that has its size; zeroes the others. */
function fillShards(output: Tensor, input: Tensor, counts: readonly number[], place: number): void {
  const [flat, values] = [output.reshape([-1]), input.reshape([-1])];
  if (counts.every((count) => count === values.numel())) {
    fillRows(flat.view([counts.length, values.numel()]), values, place);
    return;
  }
  let at = 0;
  for (const count of counts) {
    const shard = flat.narrow(0, at, count);
    if (count === values.numel()) shard.copy_(values);
    else shard.zero_();
    at += count;
  }
}

function copyShard(output: Tensor, input: Tensor, counts: readonly number[], place: number): void {
  const count = counts[place] as number;
  const start = counts.slice(0, place).reduce((a, b) => a + b, 0);
  if (count === output.numel())
    output.reshape([-1]).copy_(input.reshape([-1]).narrow(0, start, count));
  else output.zero_();
}

function copyWhole(output: Tensor, input: Tensor): void {
  if (output === input) return;
  if (output.numel() === input.numel()) output.reshape([-1]).copy_(input.reshape([-1]));
  else output.zero_();
}

/** @internal */
export const fakeEngines: EngineFactory = Object.assign(
  ({ rank, ranks }: GroupPlan) => new FakeEngine(rank % ranks.length),
  { backendFor: () => 'fake' as const },
);
