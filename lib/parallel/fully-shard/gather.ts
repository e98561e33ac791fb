/**
 * The gather of a group's parameters. Most lie in the whole as their shards do, one rank after the
 * other, so each is gathered where modules use it, in one call for all. Small ones, and those that
 * are sharded along another dim, are gathered together as rows and copied from there.
 */
import { allGatherIntoTensor, allGatherIntoTensorCoalesced } from '../../distributed/index.js';
import { cat, foreachCopy_, type Tensor, uint8 } from '../../index.js';
import { RefillableBuffer } from '../common/refillable-buffer.js';
import type { Layout } from './flat-shard.js';
import type { MemoryPlan } from './group-memory.js';
import type { ShardMesh } from './shard-mesh.js';
import type { ShardedParameter } from './sharded-parameter.js';
import { CopyOut } from './transfers.js';

/** What a gather moves: shards of one dtype, and the tensors that those of all ranks fill. */
export interface GatherPart {
  readonly inputs: readonly Tensor[];
  readonly outputs: readonly Tensor[];
  /** Whether the inputs are this rank's shards in the outputs. */
  readonly isInPlace: boolean;
}

/**
 * Gathers all parts over a mesh, in one call: those of several dtypes as bytes. `around` runs the
 * collective.
 */
export function gatherParts(
  parts: readonly GatherPart[],
  { ranks, group }: ShardMesh,
  around: (collective: () => void) => void,
): void {
  if (ranks === 1) {
    for (const { isInPlace, inputs, outputs } of parts)
      if (!isInPlace) foreachCopy_(outputs, inputs);
    return;
  }
  const asGathered = (t: Tensor): Tensor => (parts.length === 1 ? t : t.view(uint8));
  const inputs = parts.flatMap((part) => part.inputs.map(asGathered));
  const outputs = parts.flatMap((part) => part.outputs.map(asGathered));
  around(() => {
    if (outputs.length > 1) allGatherIntoTensorCoalesced(outputs, inputs, { group });
    else allGatherIntoTensor(outputs[0] as Tensor, inputs[0] as Tensor, { group });
  });
}

export class Gather {
  private readonly plan: MemoryPlan;
  private readonly layout: Layout;
  private readonly whole: RefillableBuffer;
  /** A row for each rank, of the parameters that are copied; null if there are none. */
  private readonly rows: RefillableBuffer | null;
  private readonly copies: CopyOut | null;
  /** What a gather fills: each parameter that is gathered in place, then the rows. */
  private readonly outputs: readonly Tensor[];
  /** This rank's shard in each of them. */
  private readonly own: readonly Tensor[];
  /** Whether the shards have another dtype or device than the whole. */
  private readonly isCast: boolean;
  /** The parts of the flat shard that are gathered, and that shard. */
  private sources: { readonly of: Tensor; readonly parts: readonly Tensor[] } | null = null;

  constructor(plan: MemoryPlan, layout: Layout, whole: RefillableBuffer, isCast: boolean) {
    this.plan = plan;
    this.layout = layout;
    this.whole = whole;
    this.isCast = isCast;
    const { parameters, mesh, device } = plan;
    const { dtype } = whole.memory;
    const { ranks } = mesh;
    const { copiedNumel } = layout;
    this.rows = copiedNumel === 0 ? null : new RefillableBuffer(copiedNumel * ranks, dtype, device);
    const [flat, rows] = [whole.view(), this.rows?.view() ?? null];
    this.copies = rows === null ? null : new CopyOut(parameters, layout, ranks, rows, flat);
    this.outputs = [
      ...layout.inPlace.map((i) =>
        flat.narrow(0, layout.inWhole[i] as number, this.numelOf(i) * ranks),
      ),
      ...(rows === null ? [] : [rows]),
    ];
    this.own = this.outputs.map((output) => chunk(output, mesh));
  }

  /** Elements of each rank's shard. */
  private numelOf(i: number): number {
    return (this.plan.parameters[i] as ShardedParameter).paddedNumel;
  }

  /**
   * Allocates what a gather fills, and casts what it moves.
   *
   * @param kept - what this rank has kept for the smaller mesh, if that holds the parameters
   */
  prepare(shard: Tensor, kept: Tensor | null): GatherPart {
    const { plan, outputs, own } = this;
    this.whole.allocate();
    this.rows?.allocate();
    if (kept !== null) {
      const inputs = this.partsOfKept(kept, plan.postForwardMesh as ShardMesh);
      return { inputs, outputs, isInPlace: false };
    }
    const inputs = this.partsOf(shard);
    if (!this.isCast) return { inputs, outputs, isInPlace: false };
    foreachCopy_(own, inputs);
    return { inputs: own, outputs, isInPlace: true };
  }

  /** The parts of the flat shard that go to the outputs. */
  private partsOf(shard: Tensor): readonly Tensor[] {
    const { layout, sources } = this;
    if (sources?.of === shard) return sources.parts;
    const { inPlace, inShard, copiedNumel, shardNumel } = layout;
    const parts = inPlace.map((i) => shard.narrow(0, inShard[i] as number, this.numelOf(i)));
    if (copiedNumel > 0) parts.push(shard.narrow(0, shardNumel - copiedNumel, copiedNumel));
    this.sources = { of: shard, parts };
    return parts;
  }

  private partsOfKept(kept: Tensor, { ranks }: ShardMesh): Tensor[] {
    return kept.split(this.outputs.map((output) => output.numel() / ranks));
  }

  /** Copies the parameters that are gathered as rows to where modules use them. */
  copyOut(): void {
    this.copies?.run();
  }

  /** What this rank keeps of what was gathered: together the ranks of the mesh have all of it. */
  rowsOf(mesh: ShardMesh): Tensor {
    return cat(this.outputs.map((output) => chunk(output, mesh)));
  }

  freeCopied(): void {
    this.rows?.free();
  }
}

/** The part of a flat tensor that a rank has. */
function chunk(flat: Tensor, { ranks, rank }: ShardMesh): Tensor {
  const each = flat.numel() / ranks;
  return flat.narrow(0, rank * each, each);
}
