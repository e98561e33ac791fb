/** The style of layers that compute each position independently: normalization, dropout. */
import { checkFlag, checkNumber, optionsOf } from '../../core/options.js';
import type { DeviceMesh } from '../../distributed/index.js';
import { DTensor, distributeTensor, Replicate, Shard } from '../../dtensor/index.js';
import type { nn, Tensor } from '../../index.js';
import { afterForward, beforeForward, placeParameter } from './distribute-module.js';
import { inPlacement, intoLayout, localIf, moduleAt, requireTensor } from './layouts.js';
import { APPLY_OPTIONS, type ApplyOptions, callable, ParallelStyle } from './parallel-style.js';

/** Options of {@link SequenceParallel}. */
export interface SequenceParallelOptions {
  /** The sharded dim; by default 1, the sequence of `[batch, sequence, features]`. */
  sequenceDim?: number;
  /** Whether the result is the local shard, as a plain tensor. False by default. */
  useLocalOutput?: boolean;
}

const OP = 'SequenceParallel';

class Sequence extends ParallelStyle {
  /** The dim of the sequence, which is sharded. */
  readonly sequenceDim: number;
  /** Whether the result is the local shard, not a distributed tensor. */
  readonly useLocalOutput: boolean;

  /** @throws ArgumentError for a dim that is not an integer */
  constructor(options: SequenceParallelOptions = {}) {
    super();
    const { sequenceDim = 1, useLocalOutput = false } = optionsOf(
      OP,
      options,
      'sequenceDim useLocalOutput',
    );
    checkNumber(OP, 'sequenceDim', sequenceDim, { whole: true });
    checkFlag(OP, 'useLocalOutput', useLocalOutput);
    this.sequenceDim = sequenceDim;
    this.useLocalOutput = useLocalOutput;
  }

  override _apply(module: nn.AnyModule, mesh: DeviceMesh, options: ApplyOptions = {}): void {
    const { path: ownPath = '', ...style } = optionsOf(OP, options, APPLY_OPTIONS);
    const replicate = (t: Tensor): Tensor => distributeTensor(t, mesh, [Replicate()], style);
    for (const [path, each] of module.namedModules()) {
      for (const [name] of each.namedParameters('', { recurse: false }))
        placeParameter({ op: OP, module: each, name }, mesh, Replicate(), replicate);
      for (const [name] of each.namedBuffers(path, { recurse: false })) {
        const buffer = module.getBuffer(name);
        if (!(buffer instanceof DTensor)) buffer.data = replicate(buffer.detach());
      }
    }
    const shard = Shard(this.sequenceDim);
    beforeForward(module, ([first, ...rest]) => {
      requireTensor(OP, `the input of ${moduleAt(module, ownPath)}`, first);
      return [
        inPlacement(intoLayout(first, mesh, { given: shard, desired: null }), shard),
        ...rest,
      ];
    });
    afterForward(module, (output) => localIf(this.useLocalOutput, output as Tensor));
  }
}

export type SequenceParallel = Sequence;

/**
 * Runs a layer such as LayerNorm, RMSNorm or Dropout on a shard of the sequence on each rank. Its
 * parameters are replicated: the first rank's values win, unless `srcDataRank` is null; in PyTorch
 * each rank keeps its own. A plain first argument is the local shard along `sequenceDim`, of one
 * size on all ranks; a distributed one is redistributed to `Shard(sequenceDim)`. The result is
 * distributed unless `useLocalOutput` is set.
 *
 * @see PyTorch `torch.distributed.tensor.parallel.SequenceParallel`; Korthikanti et al.,
 * arXiv:2205.05198
 */
export const SequenceParallel = callable(OP, Sequence);
