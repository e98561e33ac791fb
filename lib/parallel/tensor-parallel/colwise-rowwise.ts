/** Styles that shard a layer with a weight along its output or its input features. */
import { checkFlag, optionsOf } from '../../core/options.js';
import type { DeviceMesh } from '../../distributed/index.js';
import { distributeTensor, type Placement, Replicate, Shard } from '../../dtensor/index.js';
import { nn, ShardingError, type Tensor } from '../../index.js';
import { afterForward, beforeForward, placeParameter, replicateRest } from './distribute-module.js';
import {
  checkPlacement,
  inPlacement,
  intoLayout,
  localIf,
  moduleAt,
  requireFeatures,
  requireTensor,
} from './layouts.js';
import { APPLY_OPTIONS, type ApplyOptions, callable, ParallelStyle } from './parallel-style.js';

/** Options of {@link ColwiseParallel} and {@link RowwiseParallel}. */
export interface LinearStyleOptions {
  /** The placement of a plain first argument. */
  inputLayouts?: Placement;
  /** The placement of the result. */
  outputLayouts?: Placement;
  /** Whether the result is the local shard, as a plain tensor. True by default. */
  useLocalOutput?: boolean;
}

type Layer = nn.Linear | nn.Embedding;

/** The placements of a layer's parameters and of its input. */
interface LayerSharding {
  readonly parameters: Readonly<Record<string, Placement>>;
  readonly input: Placement;
  /** The placement of a plain input by default. */
  readonly given: Placement;
}

abstract class LayerStyle extends ParallelStyle {
  readonly inputLayouts: Placement | null;
  readonly outputLayouts: Placement;
  readonly useLocalOutput: boolean;
  private readonly op: string;

  constructor(op: string, options: LinearStyleOptions, outputLayouts: Placement) {
    super();
    const {
      inputLayouts = null,
      outputLayouts: output = outputLayouts,
      useLocalOutput = true,
    } = optionsOf(op, options, 'inputLayouts outputLayouts useLocalOutput');
    if (inputLayouts !== null) checkPlacement(op, 'inputLayouts', inputLayouts);
    checkPlacement(op, 'outputLayouts', output);
    checkFlag(op, 'useLocalOutput', useLocalOutput);
    this.op = op;
    this.inputLayouts = inputLayouts;
    this.outputLayouts = output;
    this.useLocalOutput = useLocalOutput;
  }

  /** The placements for a layer of this kind. */
  protected abstract sharding(layer: Layer): LayerSharding;

  override _apply(module: nn.AnyModule, mesh: DeviceMesh, options: ApplyOptions = {}): void {
    const { op } = this;
    const { path = '', ...style } = optionsOf(op, options, APPLY_OPTIONS);
    const named = moduleAt(module, path);
    if (!(module instanceof nn.Linear || module instanceof nn.Embedding))
      throw unsupported(op, module, named);
    const { parameters, input, given } = this.sharding(module);
    for (const [name, placement] of Object.entries(parameters)) {
      placeParameter({ op, module, name }, mesh, placement, (t) =>
        distributeTensor(t, mesh, [placement], style),
      );
    }
    replicateRest(module, mesh, style);
    const layouts = { given: this.inputLayouts ?? given, desired: input };
    const features = module instanceof nn.Linear ? module.inFeatures : null;
    beforeForward(module, ([first, ...rest]) => {
      requireTensor(op, `the input of ${named}`, first);
      if (features !== null)
        requireFeatures({ op, name: named, features }, mesh, layouts.given, first);
      return [intoLayout(first, mesh, layouts, features), ...rest];
    });
    afterForward(module, (output) =>
      localIf(this.useLocalOutput, inPlacement(output as Tensor, this.outputLayouts)),
    );
  }
}

function unsupported(op: string, module: nn.AnyModule, named: string): ShardingError {
  const layers = [...module.namedModules()]
    .filter(
      ([path, each]) => path !== '' && (each instanceof nn.Linear || each instanceof nn.Embedding),
    )
    .map(([path]) => `"${path}"`);
  const packed =
    [...module.parameters({ recurse: false })].length > 0
      ? ' This style does not shard its own parameters: use distributeModule for them.'
      : '';
  const below =
    layers.length === 0
      ? ''
      : ` Below it there ${layers.length === 1 ? 'is' : 'are'} ${layers.join(', ')}: name ` +
        `${layers.length === 1 ? 'that' : 'those'} in the plan.`;
  return new ShardingError(`${op}: expected Linear or Embedding, got ${named}.${below}${packed}`, {
    op,
    module: module.constructor.name,
  });
}

class Colwise extends LayerStyle {
  /** @throws ArgumentError for a layout that is not a placement */
  constructor(options: LinearStyleOptions = {}) {
    super('ColwiseParallel', options, Shard(-1));
  }

  protected sharding(layer: Layer): LayerSharding {
    const parameters: LayerSharding['parameters'] =
      layer instanceof nn.Linear ? { weight: Shard(0), bias: Shard(0) } : { weight: Shard(1) };
    return { parameters, input: Replicate(), given: Replicate() };
  }
}

class Rowwise extends LayerStyle {
  /** @throws ArgumentError for a layout that is not a placement */
  constructor(options: LinearStyleOptions = {}) {
    super('RowwiseParallel', options, Replicate());
  }

  protected sharding(layer: Layer): LayerSharding {
    if (layer instanceof nn.Linear)
      return {
        parameters: { weight: Shard(1), bias: Replicate() },
        input: Shard(-1),
        given: Shard(-1),
      };
    return { parameters: { weight: Shard(0) }, input: Replicate(), given: Replicate() };
  }
}

export type ColwiseParallel = Colwise;
export type RowwiseParallel = Rowwise;

/**
 * Shards a layer along its output features. `Linear`: weight and bias `Shard(0)`. `Embedding`:
 * weight `Shard(1)`. The input is replicated; a plain input counts as `inputLayouts`
 * (`Replicate()`). The result is redistributed to `outputLayouts` (`Shard(-1)`, as it is computed)
 * and becomes the local shard, a plain tensor, unless `useLocalOutput` is false. Any other module
 * is a ShardingError.
 *
 * Communication: none in forward; the gradient of the input is reduced in backward.
 *
 * @see PyTorch `torch.distributed.tensor.parallel.ColwiseParallel`; Shoeybi et al.,
 * arXiv:1909.08053
 * @example
 * parallelizeModule(model, mesh, { 0: ColwiseParallel(), 1: RowwiseParallel() });
 * model(x).shape; // [4, 8]
 */
export const ColwiseParallel = callable('ColwiseParallel', Colwise);

/**
 * Shards a layer along its input features. `Linear`: weight `Shard(1)`, bias `Replicate()`, input
 * `Shard(-1)`. `Embedding`: weight `Shard(0)`, indices replicated. A plain input counts as
 * `inputLayouts`, by default the placement that the layer needs. The result is `Partial()` and is
 * redistributed to `outputLayouts`: `Replicate()` by default (all-reduce), or `Shard(dim)`
 * (reduce-scatter). It is a plain tensor unless `useLocalOutput` is false.
 *
 * @see PyTorch `torch.distributed.tensor.parallel.RowwiseParallel`; Shoeybi et al.,
 * arXiv:1909.08053
 * @example
 * parallelizeModule(model, mesh, { 0: ColwiseParallel(), 1: RowwiseParallel() });
 * model(x).shape; // [4, 8]
 */
export const RowwiseParallel = callable('RowwiseParallel', Rowwise);
