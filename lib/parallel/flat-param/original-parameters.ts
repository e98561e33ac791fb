/**
 * The original parameters under `useOrigParams`: between steps each is a view of what this rank's
 * shard holds of it, a flat tensor that may be empty. Optimizers update them.
 */
import { sameShape } from '../../core/shape.js';
import { autograd, nn, noGrad, ShapeError, type Tensor } from '../../index.js';
import { localOf } from '../fully-shard/sharded-parameter.js';
import { type FlatEntry, type FlatParameter, markFlattened, markReplaced } from './flat-entries.js';
import type { ShardParamInfo } from './layout.js';

export class OriginalParameters {
  private readonly flatParam: FlatParameter;
  private readonly entries: readonly FlatEntry[];
  /** The memory of the shard that the parameters are views of. */
  private memory: object | null = null;
  private takesGradients = false;

  /** In the order of the entries. */
  readonly parameters: readonly nn.Parameter[];

  constructor(flatParam: FlatParameter, entries: ReadonlyMap<nn.Parameter, FlatEntry>) {
    this.flatParam = flatParam;
    this.entries = [...entries.values()];
    this.parameters = [...entries].map(([parameter, entry]) => plainParameter(parameter, entry));
    this.takeGradients();
  }

  /** Divides each gradient of the shard, once that gets any. */
  private takeGradients(): void {
    const { flatParam } = this;
    if (this.takesGradients || !flatParam.requiresGrad) return;
    this.takesGradients = true;
    const hook = autograd.opaqueHook(() => this.takeGradient(), ['takeGradient', this]);
    flatParam.registerPostAccumulateGradHook(hook);
  }

  /** What the shard holds of a parameter: all of it in its shape if the shard is not divided. */
  private partOf(shard: Tensor, i: number): Tensor {
    const info = this.flatParam._shardParamInfos[i] as ShardParamInfo;
    const { shape, numel } = this.entries[i] as FlatEntry;
    const part = shard.narrow(0, info.offsetInShard ?? 0, info.numelInShard ?? 0);
    return this.flatParam._isWhole && info.numelInShard === numel ? part.view(shape) : part;
  }

  /** Makes all parameters views of the shard, if that has new memory. */
  use(): void {
    if (this.memory !== this.flatParam.untypedStorage()) this.viewShard();
  }

  private viewShard(): void {
    const { flatParam } = this;
    const memory = flatParam.untypedStorage();
    this.memory = memory;
    noGrad(() => {
      const shard = flatParam.detach();
      for (const [i, parameter] of this.parameters.entries()) {
        if (parameter.untypedStorage() === memory) continue;
        const part = this.partOf(shard, i);
        if (parameter.grad !== null && !sameShape(parameter.grad.shape, part.shape))
          parameter.grad = null;
        parameter.data = part;
      }
    });
  }

  /** Whether {@link adopt} would change the shard, or follow a change of `requiresGrad`. */
  get isStale(): boolean {
    const { flatParam, parameters } = this;
    const storage = flatParam.untypedStorage();
    return (
      flatParam.requiresGrad !== parameters.some(({ requiresGrad }) => requiresGrad) ||
      parameters.some((parameter) => parameter.untypedStorage() !== storage)
    );
  }

  /**
   * Copies the values of parameters whose memory was replaced, by `module.to` or `data =`, into the
   * shard, which gets their dtype and device. Follows changes of `requiresGrad`.
   *
   * @throws ShapeError if one has another shape than its part of the shard
   */
  adopt(): void {
    const { flatParam, parameters } = this;
    flatParam.requiresGrad_(parameters.some(({ requiresGrad }) => requiresGrad));
    this.takeGradients();
    const storage = flatParam.untypedStorage();
    const moved = parameters.flatMap((parameter, i) =>
      parameter.untypedStorage() === storage ? [] : [{ parameter, i }],
    );
    const [first] = moved;
    if (first === undefined) return;
    noGrad(() => {
      const { dtype, device } = first.parameter;
      if (dtype !== flatParam.dtype || device !== flatParam.device)
        flatParam.data = flatParam.detach().to({ dtype, device });
      const shard = flatParam.detach();
      for (const { parameter, i } of moved) {
        const { name } = this.entries[i] as FlatEntry;
        const part = this.partOf(shard, i);
        if (!sameShape(parameter.shape, part.shape))
          throw new ShapeError(
            `FullyShardedDataParallel: expected "${name}" to have the shape of its part of this ` +
              `rank's shard, [${part.shape.join(', ')}], got [${parameter.shape.join(', ')}]. ` +
              'Change whole parameters in summonFullParams.',
            { parameter: name, expected: part.shape, given: parameter.shape },
          );
        part.copy_(parameter);
      }
    });
    this.viewShard();
  }

  /** Divides the gradient of the shard among the parameters, and runs their hooks. */
  private takeGradient(): void {
    const { flatParam } = this;
    const { grad } = flatParam;
    if (grad === null) return;
    flatParam.grad = null;
    noGrad(() => {
      for (const [i, parameter] of this.parameters.entries()) {
        const info = flatParam._shardParamInfos[i] as ShardParamInfo;
        if (!info.inShard || !parameter.requiresGrad) continue;
        const part = this.partOf(grad, i);
        if (parameter.grad === null) parameter.grad = part.to(parameter.gradDtype);
        else parameter.grad.add_(part);
      }
    });
    for (const [i, parameter] of this.parameters.entries())
      if (flatParam._shardParamInfos[i]?.inShard && parameter.requiresGrad)
        autograd.runPostAccumulateGradHooks(parameter);
  }
}

/**
 * A distributed parameter has placements, which a part of its flat local shard cannot have; a plain
 * one takes its place.
 */
function plainParameter(parameter: nn.Parameter, entry: FlatEntry): nn.Parameter {
  if (entry.distributed === null) return parameter;
  const plain = new nn.Parameter(localOf(parameter).detach(), parameter.requiresGrad);
  markFlattened(new Map([[plain, entry]]));
  markReplaced(parameter, entry.name, 'a plain parameter, because it was distributed');
  return plain;
}
