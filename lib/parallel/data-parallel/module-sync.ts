/**
 * The state of rank 0 on all ranks: of parameters and buffers at first, of buffers in each forward.
 */
import {
  broadcast,
  getGlobalRank,
  type ProcessGroup,
  withPurpose,
} from '../../distributed/index.js';
import { cat, foreachCopy_, type nn, noGrad, scope, type Tensor } from '../../index.js';
import { purposeOfTensor } from '../common/same-parameters.js';

/**
 * Copies parameters and buffers of rank 0 to all ranks. All ranks must have the same ones: a
 * difference is a CollectiveError that names the first, when a value is read.
 */
export function broadcastModule(module: nn.AnyModule, group: ProcessGroup): void {
  const all = [...module.namedParameters(), ...module.namedBuffers()];
  const src = getGlobalRank(group, 0);
  for (const [i, [name, t]] of all.entries()) {
    const purpose = purposeOfTensor(
      name,
      t,
      [i, all.length],
      'the model in DistributedDataParallel',
    );
    withPurpose(purpose, () => broadcast(t.detach(), src, { group }));
  }
}

export class BufferSync {
  private readonly slots: readonly { readonly owner: nn.AnyModule; readonly name: string }[];
  private readonly group: ProcessGroup;
  private readonly src: number;

  constructor(module: nn.AnyModule, group: ProcessGroup) {
    this.group = group;
    this.src = getGlobalRank(group, 0);
    this.slots = [...module.modules()].flatMap((owner) =>
      [...owner.namedBuffers('', { recurse: false })].map(([name]) => ({ owner, name })),
    );
  }

  /** Copies the buffers of rank 0 to all ranks: one collective for each dtype and device. */
  run(): void {
    if (this.slots.length === 0) return;
    const kinds = new Map<string, Tensor[]>();
    for (const t of new Set(this.slots.map(({ owner, name }) => owner.getBuffer(name)))) {
      const key = `${t.dtype.name} ${t.device}`;
      const list = kinds.get(key);
      if (list === undefined) kinds.set(key, [t.detach()]);
      else list.push(t.detach());
    }
    noGrad(() => scope(() => kinds.forEach((list) => this.broadcast(list))));
  }

  private broadcast(buffers: readonly Tensor[]): void {
    const { group, src } = this;
    if (buffers.length === 1) {
      broadcast(buffers[0] as Tensor, src, { group });
      return;
    }
    const flat = cat(buffers.map((t) => t.reshape([-1])));
    broadcast(flat, src, { group });
    if (group.rank === 0) return;
    const parts = flat.split(buffers.map((t) => t.numel()));
    foreachCopy_(
      buffers,
      parts.map((part, i) => part.view((buffers[i] as Tensor).shape)),
    );
  }
}
