/** A model as a job shards it: tensor parallel with sharded sequences, then fully sharded or DDP. */
import {
  applyActivationCheckpointing,
  ColwiseParallel,
  type DeviceMesh,
  DistributedDataParallel,
  fullyShard,
  initDeviceMesh,
  lossParallel,
  MixedPrecisionPolicy,
  type ParallelStyle,
  PrepareModuleInput,
  parallelizeModule,
  Replicate,
  RowwiseParallel,
  SequenceParallel,
  Shard,
} from '../../lib/distributed.js';
import { amp, compile, float32, type nn, type Tensor } from '../../lib/index.js';
import { Gpt } from '../gpt.js';
import { initialize, tokensOf } from './initial.js';
import { type Job, lossOfRows, type Mode } from './job.js';
import { Llama, rotationOf } from './llama.js';

export interface Training {
  /** The loss of this rank's batch, always the same one. */
  readonly loss: () => Tensor;
  readonly parameters: Iterable<Tensor>;
}

class GptOfRows extends Gpt {
  override forward(input: Tensor, target: Tensor): Tensor {
    return lossOfRows(this.logits(input), target);
  }
}

type Layers = nn.ModuleList<nn.Module<Tensor[], Tensor>>;

/** Sequences are sharded between the layers, logits by their classes. */
function tensorParallelPlan(): Record<string, ParallelStyle> {
  const input = (more: readonly null[]) =>
    PrepareModuleInput({
      inputLayouts: [Shard(1), ...more],
      desiredInputLayouts: [Replicate(), ...more],
    });
  return {
    tokens: RowwiseParallel({ inputLayouts: Replicate(), outputLayouts: Shard(1) }),
    'layers.*.n?': SequenceParallel(),
    'layers.*.attention': input([null, null]),
    'layers.*.attention.[qkv]': ColwiseParallel(),
    'layers.*.attention.o': RowwiseParallel({ outputLayouts: Shard(1) }),
    'layers.*.feedForward': input([]),
    'layers.*.feedForward.gate': ColwiseParallel(),
    'layers.*.feedForward.up': ColwiseParallel(),
    'layers.*.feedForward.down': RowwiseParallel({ outputLayouts: Shard(1) }),
    norm: SequenceParallel(),
    head: ColwiseParallel({ inputLayouts: Shard(1), useLocalOutput: false }),
  };
}

function fullySharded(layers: Layers, model: nn.AnyModule, mesh: DeviceMesh, job: Job, mode: Mode) {
  const mpPolicy = new MixedPrecisionPolicy({ paramDtype: job.dtype, reduceDtype: float32 });
  const options = { mesh, mpPolicy, reshardAfterForward: mode.reshard };
  const all = [...layers].map((layer) => fullyShard(layer, options));
  fullyShard(model, { mesh, mpPolicy });
  if (mode.prefetch === 0) return;
  for (const [i, layer] of all.entries()) {
    layer.setModulesToForwardPrefetch(all.slice(i + 1, i + 1 + mode.prefetch));
    layer.setModulesToBackwardPrefetch(all.slice(Math.max(0, i - mode.prefetch), i).reverse());
  }
}

/** The model of a job on this rank, with its values and its batch. */
export function training(job: Job, mode: Mode): Training {
  const { model: size, device, dataRanks, tensorRanks } = job;
  const mesh = initDeviceMesh(device, [dataRanks, tensorRanks], { meshDimNames: ['dp', 'tp'] });
  const place = job.parallel === 'fsdp' ? 'meta' : device;
  const model = size.kind === 'gpt' ? new GptOfRows(size, place) : new Llama(size, place);
  model.scopes = mode.scopes;
  const layers = model.layers as unknown as Layers;
  if (tensorRanks > 1) parallelizeModule(model, mesh.get('tp'), tensorParallelPlan());
  if (job.checkpoint) {
    const all = new Set<nn.AnyModule>(layers);
    applyActivationCheckpointing(model, { checkFn: (module) => all.has(module) });
  }
  const { backend = 'inductor' } = mode;
  const isLayered = mode.compile === 'layers';
  if (isLayered) for (const layer of layers) layer.compile({ backend });
  if (job.parallel === 'fsdp') {
    fullySharded(layers, model, mesh.get('dp'), job, mode);
    model.toEmpty({ device });
  }
  initialize(model);
  const rank = mesh.getLocalRank('dp');
  const draw = (salt: number): Tensor =>
    tokensOf([job.batch, size.context], { vocabulary: size.vocabulary, rank, salt }, device);
  const inputs = [draw(0), draw(1)];
  if (size.kind === 'llama')
    inputs.push(...rotationOf(size, device).map((each) => each.to(job.dtype)));
  const isDdp = job.parallel === 'ddp' && dataRanks > 1;
  const whole = isDdp ? new DistributedDataParallel(model as nn.AnyModule) : model;
  const called = (mode.compile && !isLayered ? compile(whole as never, { backend }) : whole) as (
    ...inputs: Tensor[]
  ) => Tensor;
  return { loss: lossOf(job, () => called(...inputs)), parameters: model.parameters() };
}

/** The loss under the modes of a job. */
function lossOf({ device, dtype, parallel, tensorRanks }: Job, loss: () => Tensor): () => Tensor {
  if (tensorRanks > 1) return () => lossParallel(loss);
  if (parallel === 'fsdp' || dtype === 'float32') return loss;
  return () => amp.autocast({ deviceType: device, dtype }, loss);
}
