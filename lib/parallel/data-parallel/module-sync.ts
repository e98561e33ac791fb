/**
 * The state of rank 0 on all ranks: of parameters and buffers at first, of buffers in each forward.
 */
import {
  allReduce,
  broadcast,
  getGlobalRank,
  type ProcessGroup,
  withPurpose,
} from '../../distributed/index.js';
import {
  bool,
  cat,
  foreachCopy_,
  type nn,
  noGrad,
  scope,
  type Tensor,
  uint8,
  where,
} from '../../index.js';
import { purposeOfTensor } from '../common/same-parameters.js';

/**
 * Copies parameters and buffers of one rank of the group, the first, to all ranks. All ranks must
 * have the same ones: a difference is a CollectiveError that names the first, when a value is read.
 */
export function broadcastModule(module: nn.AnyModule, group: ProcessGroup, from = 0): void {
  const all = [...module.namedParameters(), ...module.namedBuffers()];
  const src = getGlobalRank(group, from);
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

  /** Whether there are buffers. */
  get isNeeded(): boolean {
    return this.slots.length > 0;
  }

  /** The buffers, each once and without history. */
  buffers(): Tensor[] {
    const all = this.slots.map(({ owner, name }) => owner.getBuffer(name));
    return [...new Set(all)].map((t) => t.detach());
  }

  /**
   * Copies the buffers of rank 0 to all ranks, or those of the rank where `isSource` is true: one
   * collective for each dtype and device.
   */
  run(buffers: readonly Tensor[], isSource: Tensor | null = null): void {
    const kinds = new Map<string, Tensor[]>();
    for (const t of buffers) {
      const key = `${t.dtype.name} ${t.device}`;
      const list = kinds.get(key);
      if (list === undefined) kinds.set(key, [t]);
      else list.push(t);
    }
    noGrad(() =>
      scope(() => {
        for (const list of kinds.values())
          if (isSource === null) this.broadcast(list);
          else this.sumFrom(isSource, list);
      }),
    );
  }

  /** No rank knows the source: all add what they have, and those that are not the source zeros. */
  private sumFrom(isSource: Tensor, buffers: readonly Tensor[]): void {
    const flat = cat(buffers.map((t) => t.reshape([-1])));
    const given = where(isSource.to(flat.device), flat, flat.zerosLike());
    const summed = flat.dtype === bool ? given.to(uint8) : given;
    allReduce(summed, { op: 'sum', group: this.group });
    copyBack(buffers, summed);
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
    copyBack(buffers, flat);
  }
}

function copyBack(buffers: readonly Tensor[], flat: Tensor): void {
  const parts = flat.split(buffers.map((t) => t.numel()));
  foreachCopy_(
    buffers,
    parts.map((part, i) => part.view((buffers[i] as Tensor).shape)),
  );
}
