/**
 * LoRA (Hu et al., 2021): the weights of a model stay, and chosen linear layers learn a product of
 * two narrow matrices that is added to theirs.
 */
import { nn, noGrad, type Tensor } from '../../lib/index.js';
import type { Llama } from './model.js';

/** What LoRA adds. */
export interface LoraOptions {
  /** The inner size of the products. */
  readonly rank: number;
  /** The products are multiplied by `alpha / rank`. */
  readonly alpha: number;
  /** The layers that get one, by their names in files, such as `q_proj`. */
  readonly targets: readonly string[];
}

/** The layers of a Llama that LoRA may change, by their names in files. */
export const LORA_TARGETS: readonly string[] = [
  'q_proj',
  'k_proj',
  'v_proj',
  'o_proj',
  'gate_proj',
  'up_proj',
  'down_proj',
];

/** y = x W^T + b + scale x A^T B^T. W and b are those of another layer, frozen. */
export class LoraLinear extends nn.Linear {
  readonly scale: number;
  loraA: nn.Parameter;
  loraB: nn.Parameter;

  constructor(base: nn.Linear, { rank, alpha }: LoraOptions) {
    const { inFeatures, outFeatures, weight } = base;
    const place = { device: weight.device, dtype: weight.dtype };
    super(inFeatures, outFeatures, base.bias !== null, { ...place, device: 'meta' });
    this.weight = weight;
    this.bias = base.bias;
    this.scale = alpha / rank;
    this.loraA = new nn.Linear(inFeatures, rank, false, place).weight;
    this.loraB = new nn.Linear(rank, outFeatures, false, place).weight;
  }

  /** A is drawn as the weight of a linear layer, and B is zero: so nothing changes at first. */
  resetLora(): void {
    nn.init.kaimingUniform_(this.loraA, { a: Math.sqrt(5) });
    nn.init.zeros_(this.loraB);
  }

  override forward(x: Tensor): Tensor {
    const { linear } = nn.functional;
    return super.forward(x).add(linear(linear(x, this.loraA), this.loraB).mul(this.scale));
  }

  /** Adds the product to the weight. */
  merge(): void {
    noGrad(() => {
      this.weight.add_(this.loraB.matmul(this.loraA), { alpha: this.scale });
      nn.init.zeros_(this.loraB);
    });
  }
}

/** The layers that LoRA has changed. */
export function loraLayers(model: Llama): LoraLinear[] {
  return [...model.modules()].filter((module) => module instanceof LoraLinear);
}

/** Freezes a model, and adds LoRA to the targets. */
export function addLora(model: Llama, options: LoraOptions): void {
  for (const parameter of model.parameters()) parameter.requiresGrad_(false);
  const targets = options.targets.map((name) =>
    name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase()),
  );
  for (const module of model.model.layers.modules())
    for (const [name, child] of module.namedChildren())
      if (child instanceof nn.Linear && targets.includes(name))
        (module as unknown as Record<string, nn.AnyModule>)[name] = new LoraLinear(child, options);
}
